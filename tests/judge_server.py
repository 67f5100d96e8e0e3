"""A local OpenAI-compatible endpoint with a real model and injected failures."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image
from server_threads import serve_in_thread

from embodied_rm.models.judges.chat import Query
from embodied_rm.models.judges.local import LocalChat

INJECTED_FAILURES = ("500", "429", "garbage", "not json", "slow", "hang up", "nonsense")
"""Ways in which a request can fail. "nonsense" is a valid response whose answer cannot be parsed."""


class Endpoint:
    """State and statistics of the server."""

    def __init__(self, chat: LocalChat, inject_failure: Callable[[str, int], str | None], slow_s: float) -> None:
        self.chat, self.inject_failure, self.slow_s = chat, inject_failure, slow_s
        self.attempts: Counter[str] = Counter()
        """Digest of a query -> number of its attempts."""
        self.outcomes: dict[str, list[str]] = {}
        """Digest of a query -> the injected failure of each attempt, or "fine"."""
        self.keys: set[str | None] = set()
        self.max_concurrent = 0
        self._num_active = 0
        self._lock, self._model_lock = threading.Lock(), threading.Lock()
        self.url = ""

    def begin(self, body: bytes) -> str | None:
        """Count an attempt and return its injected failure, if any."""
        digest = hashlib.sha256(body).hexdigest()
        with self._lock:
            self._num_active += 1
            self.max_concurrent = max(self.max_concurrent, self._num_active)
            attempt = self.attempts[digest]
            self.attempts[digest] += 1
            failure = self.inject_failure(digest, attempt)
            self.outcomes.setdefault(digest, []).append(failure or "fine")
        return failure

    def end(self) -> None:
        with self._lock:
            self._num_active -= 1

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the first choice of a chat completion by the model."""
        system = "".join(turn["content"] for turn in body["messages"] if turn["role"] == "system")
        (user,) = (turn["content"] for turn in body["messages"] if turn["role"] == "user")
        parts = tuple(part["text"] if part["type"] == "text" else image(part["image_url"]["url"]) for part in user)
        with self._model_lock:
            if body.get("logprobs"):
                return self._logprobs(Query(parts=parts, system=system, choices=("yes", "no")), body["top_logprobs"])
            (answer,) = self.chat.ask([Query(parts=parts, system=system, max_tokens=body["max_tokens"])])
        return {"message": {"role": "assistant", "content": answer.text}}

    def _logprobs(self, query: Query, count: int) -> dict[str, Any]:
        (answer,) = self.chat.ask([query])
        assert answer.logprobs is not None
        top = [{"token": f" {word}", "logprob": value} for word, value in answer.logprobs.items()][:count]
        return {"message": {"content": "yes"}, "logprobs": {"content": [{"token": "yes", "top_logprobs": top}]}}


def image(url: str) -> np.ndarray:
    head, _, data = url.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


@contextmanager
def serving(
    chat: LocalChat,
    inject_failure: Callable[[str, int], str | None] = lambda digest, attempt: None,
    slow_s: float = 30.0,
) -> Iterator[Endpoint]:
    """Run the endpoint in the context.

    Args:
        chat: The model.
        inject_failure: Function of the digest of a query and the number of earlier attempts. None: no failure.
        slow_s: Maximum delay of a "slow" response, in seconds.
    """
    endpoint, ended = Endpoint(chat, inject_failure, slow_s), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.keys.add(self.headers.get("Authorization"))
            failure = endpoint.begin(body)
            try:
                self._reply(failure, json.loads(body))
            finally:
                endpoint.end()

        def _reply(self, failure: str | None, body: dict[str, Any]) -> None:
            if self.path != "/v1/chat/completions" or body["model"] != "tiny":
                self._send(404, b'{"error": "no such model"}')
            elif failure in ("500", "429"):
                self._send(int(failure), b"{}", {"Retry-After": "0"} if failure == "429" else {})
            elif failure == "garbage":
                self._send(200, b'{"choices": [{"message": {"content": null}}]}')
            elif failure == "not json":
                self._send(200, b"<html>proxy</html>")
            elif failure == "hang up":
                self.connection.shutdown(socket.SHUT_RDWR)
            elif failure == "slow":
                ended.wait(endpoint.slow_s)
            elif failure == "nonsense":
                self._send(200, b'{"choices": [{"message": {"content": "I am not sure."}}]}')
            else:
                self._send(200, json.dumps({"choices": [endpoint.answer(body)]}).encode())

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            return

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (OSError, ValueError):  # the client disconnected
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    with serve_in_thread(server):
        try:
            yield endpoint
        finally:
            ended.set()
