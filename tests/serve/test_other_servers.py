"""Servers that are no reward service and no endpoint: one sentence, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from embodied_rm.client import reward_client
from embodied_rm.client.client_errors import ServiceError, ServiceUnavailableError
from embodied_rm.client.reward_client import RewardClient
from embodied_rm.models.judges import endpoint
from embodied_rm.models.judges.chat import Query
from embodied_rm.models.judges.endpoint import EndpointChat, EndpointConfig
from embodied_rm.models.judges.remote import RemoteRewardModel

MEBIBYTE = 1 << 20
DEEP = b"[" * 200_000
BODIES = {
    "HTML": b"<html>It works!</html>",
    "a list": b"[]",
    "deep JSON": DEEP,
    "no parameters": b'{"name": "model"}',
    "other parameters": b'{"parameters": {"views": 3, "image_size": []}}',
}


@contextmanager
def serve_body(body: bytes, *, status: int = 200, drip_s: float = 0.0, **headers: str) -> Iterator[str]:
    """Answer every request with a body, one byte after the other if `drip_s`."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for byte in [body] if not drip_s else (body[i : i + 1] for i in range(len(body))):
                self.wfile.write(byte)
                time.sleep(drip_s)

        def log_message(self, *args: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(ConnectionError):  # the client has seen enough
                super().handle()

    for method in ("do_GET", "do_POST"):
        setattr(Handler, method, Handler.answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(url: str, choices: tuple[str, ...] = (), **config: Any) -> str | None:
    """Return the failure of a question to an endpoint."""
    chat = EndpointChat(EndpointConfig(url=f"{url}/v1", model="m", max_attempts=1, **config))
    (answer,) = chat.ask([Query(parts=("done?",), choices=choices)])
    return answer.failure


@pytest.mark.parametrize("name", BODIES)
def test_another_server_is_no_reward_service(name: str) -> None:
    with serve_body(BODIES[name]) as url, pytest.raises(ServiceError, match="is no reward service of embodied_rm") as e:
        RemoteRewardModel(RewardClient(url, retry_timeout_s=1))
    assert len(str(e.value)) < 300


def test_a_prediction_of_another_form_is_refused() -> None:
    frames = {"front": np.zeros((1, 8, 8, 3), np.uint8)}
    with serve_body(b"{}") as url, pytest.raises(ServiceError, match="its response cannot be read"):
        RewardClient(url, retry_timeout_s=1).reset([0], [0], ["go"], frames)


def test_a_date_to_retry_after_that_is_no_number_is_ignored() -> None:
    with serve_body(b"", status=503, **{"Retry-After": "\xb2"}) as url:
        with pytest.raises(ServiceUnavailableError, match="accepts no requests"):
            RewardClient(url, retry_timeout_s=0.1).get_metadata()
        assert ask(url) == "overloaded"


def test_compressed_responses_are_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_body(gzip.compress(bytes(64 * MEBIBYTE)), **{"Content-Encoding": "gzip"}) as url:
        with pytest.raises(ServiceError, match="it is compressed"):
            RewardClient(url, retry_timeout_s=1).get_metadata()
        assert ask(url) == "malformed"


def test_long_responses_are_not_read_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reward_client, endpoint):
        monkeypatch.setattr(module, "MAX_RESPONSE_BYTES", MEBIBYTE)
    with serve_body(bytes(2 * MEBIBYTE)) as url:
        with pytest.raises(ServiceError, match="it has more than 1 MiB"):
            RewardClient(url, retry_timeout_s=1).get_metadata()
        assert ask(url) == "malformed"


def test_a_response_in_drops_is_given_up() -> None:
    with serve_body(b" " * 10_000, drip_s=0.1) as url:
        with pytest.raises(ServiceUnavailableError, match=r"it took longer than 0\.5 s"):
            RewardClient(url, retry_timeout_s=0.5, request_timeout_s=0.5).get_metadata()
        assert ask(url, timeout_s=0.5) == "timeout"


@contextmanager
def serve_drops(first: bytes, drop: bytes) -> Iterator[str]:
    """Answer every request with some bytes, and then with drops that never end."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):  # the client has seen enough
                self.request.sendall(first)
                while not stopped.wait(0.05):
                    self.request.sendall(drop)

    stopped = Event()
    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        stopped.set()
        server.shutdown()


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Name: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    ],
    ids=["interim responses", "headers", "body"],
)
def test_a_server_that_never_ends_its_response_is_given_up(first: bytes, drop: bytes) -> None:
    """Every drop started the timeout anew: the client waited for ever. Threads that share it have own deadlines."""
    with serve_drops(first, drop) as url:
        client = RewardClient(url, retry_timeout_s=0.5, request_timeout_s=0.5)
        with ThreadPoolExecutor(4) as pool:
            start_s = time.monotonic()
            answers = [pool.submit(client.get_metadata) for _ in range(4)]
            for answer in answers:
                with pytest.raises(ServiceUnavailableError, match=r"it took longer than 0\.5 s"):
                    answer.result(timeout=30)
        assert time.monotonic() - start_s < 20
        assert ask(url, timeout_s=0.5) == "timeout"


@pytest.mark.parametrize("logprob", [1000.0, float("nan"), float("inf")])
def test_probabilities_above_1_are_malformed(logprob: float) -> None:
    top = {"top_logprobs": [{"token": "yes", "logprob": logprob}]}
    body = {"choices": [{"message": {"content": "yes"}, "logprobs": {"content": [top]}}]}
    with serve_body(json.dumps(body).encode()) as url:
        assert ask(url, choices=("yes", "no")) == "malformed"


def test_deep_json_is_malformed() -> None:
    with serve_body(DEEP) as url:
        assert ask(url) == "malformed"
