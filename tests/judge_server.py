"""An OpenAI-compatible endpoint on this machine with a real model behind it, which can be told to fail."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from embodied_rm.models.judges.chat import Query
from embodied_rm.models.judges.local import LocalChat

INJECTED_FAILURES = ("500", "429", "garbage", "not json", "slow", "hang up", "nonsense")
"""How a request may fail. The last is an answer by the protocol that says nothing of what was asked."""


class Endpoint:
    """What the server saw and did."""

    def __init__(self, chat: LocalChat, fails: Callable[[str, int], str | None], slow: float) -> None:
        self.chat, self.fails, self.slow = chat, fails, slow
        self.attempts: Counter[str] = Counter()
        """Of each question, by its digest."""
        self.outcomes: dict[str, list[str]] = {}
        """What became of each attempt."""
        self.keys: set[str | None] = set()
        self.most_at_once = 0
        self._now = 0
        self._lock, self._model = threading.Lock(), threading.Lock()
        self.url = ""

    def begin(self, body: bytes) -> tuple[str, str | None]:
        """The question's digest, and how this attempt is to fail."""
        digest = hashlib.sha256(body).hexdigest()
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            attempt = self.attempts[digest]
            self.attempts[digest] += 1
            failure = self.fails(digest, attempt)
            self.outcomes.setdefault(digest, []).append(failure or "fine")
        return digest, failure

    def end(self) -> None:
        with self._lock:
            self._now -= 1

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """A chat completion by the model."""
        system = "".join(turn["content"] for turn in body["messages"] if turn["role"] == "system")
        (user,) = (turn["content"] for turn in body["messages"] if turn["role"] == "user")
        parts = tuple(part["text"] if part["type"] == "text" else image(part["image_url"]["url"]) for part in user)
        with self._model:
            if body.get("logprobs"):
                return self._listed(Query(parts=parts, system=system, choices=("yes", "no")), body["top_logprobs"])
            (said,) = self.chat.ask([Query(parts=parts, system=system, max_tokens=body["max_tokens"])])
        return {"message": {"role": "assistant", "content": said.text}}

    def _listed(self, query: Query, most: int) -> dict[str, Any]:
        (said,) = self.chat.ask([query])
        assert said.logprobs is not None
        tops = [{"token": f" {word}", "logprob": value} for word, value in said.logprobs.items()][:most]
        return {"message": {"content": "yes"}, "logprobs": {"content": [{"token": "yes", "top_logprobs": tops}]}}


def image(url: str) -> np.ndarray:
    head, _, data = url.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


@contextmanager
def serving(
    chat: LocalChat, fails: Callable[[str, int], str | None] = lambda digest, attempt: None, slow: float = 30.0
) -> Iterator[Endpoint]:
    """The endpoint, until the block ends. `fails(digest, attempt)`: how that attempt fails; None: it does not."""
    endpoint, ended = Endpoint(chat, fails, slow), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.keys.add(self.headers.get("Authorization"))
            _, failure = endpoint.begin(body)
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
                ended.wait(endpoint.slow)
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
            except (OSError, ValueError):  # whoever asked went away
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield endpoint
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
        time.sleep(0)
