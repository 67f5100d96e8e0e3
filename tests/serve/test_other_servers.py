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
from threading import Event
from typing import Any

import numpy as np
import pytest
from server_threads import serve_in_thread

from embodied_rm.client import reward_client
from embodied_rm.client.client_errors import (
    EpisodeLostError,
    ServiceError,
    ServiceUnavailableError,
    UnexpectedResponseError,
)
from embodied_rm.client.episode_scorer import EpisodeScorer, ShapingConfig
from embodied_rm.client.reward_client import RewardClient
from embodied_rm.client.wire import HEADER_LENGTH_HEADER, RewardPrediction, encode_response
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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serve_in_thread(server):
        yield f"http://127.0.0.1:{server.server_port}"


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


COLUMNS = {
    "progress": np.full(2, 0.5, np.float32),
    "valid": np.ones(2, bool),
    "subtask": np.array([-1, 3]),
    "success": np.array([-1, 1], np.float32),
    "uncertainty": np.zeros(2, np.float32),
    "ood": np.array([-1, 2], np.float32),
}
WRONG_COLUMNS: dict[str, dict[str, Any]] = {
    "more rows": {name: np.tile(column, 2) for name, column in COLUMNS.items()},
    "no rows": {name: column[:0] for name, column in COLUMNS.items()},
    "a column of columns": {name: column[:, None] for name, column in COLUMNS.items()},
    "huge progress": {"progress": np.full(2, 1e30, np.float32)},
    "no progress": {"progress": np.full(2, np.nan, np.float32)},
    "huge success": {"success": np.full(2, np.inf, np.float32)},
    "negative uncertainty": {"uncertainty": np.full(2, -1, np.float32)},
    "huge subtask": {"subtask": np.full(2, 2**62)},
    "integers": {"progress": np.zeros(2, np.int64)},
    "bytes": {"valid": np.full(2, 7, np.uint8)},
}


def ask_service(columns: dict[str, Any], **metadata: Any) -> RewardPrediction:
    """Return the prediction that a service answers for two environments."""
    header, blobs = encode_response({**COLUMNS, **columns}, {"state_bytes": 0, **metadata})
    length = {HEADER_LENGTH_HEADER: str(len(header))}
    with serve_body(b"".join([header, *map(bytes, blobs)]), **length) as url:
        client = RewardClient(url, retry_timeout_s=1)
        return client.reset([0, 1], [0, 0], ["go"] * 2, {"front": np.zeros((2, 8, 8, 3), np.uint8)})


@pytest.mark.parametrize("name", WRONG_COLUMNS)
def test_columns_that_do_not_fit_the_request_are_refused(name: str) -> None:
    assert np.isnan(ask_service({}).success[0]) and ask_service({}).progress.tolist() == [0.5, 0.5]
    with pytest.raises(UnexpectedResponseError, match="its response cannot be read"):
        ask_service(WRONG_COLUMNS[name])


def test_a_state_of_another_length_is_refused() -> None:
    with pytest.raises(UnexpectedResponseError, match="state_bytes=7 of 0"):
        ask_service({}, state_bytes=7)


@pytest.mark.parametrize("shape", [[10**30], [-1, -2], None, "2", [[2]], {}])
def test_a_strange_shape_is_refused(shape: object) -> None:
    output = {"name": "progress", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": 8}}
    body = json.dumps({"outputs": [output]}).encode()
    frames = {"front": np.zeros((1, 8, 8, 3), np.uint8)}
    with (
        serve_body(body + bytes(8), **{HEADER_LENGTH_HEADER: str(len(body))}) as url,
        pytest.raises(UnexpectedResponseError, match="its response cannot be read"),
    ):
        RewardClient(url, retry_timeout_s=1).reset([0], [0], ["go"], frames)


@pytest.mark.parametrize(
    "change",
    [
        {"views": [1, 2]},
        {"views": [["front"]]},
        {"views": "front"},
        {"views": ["front", "front"]},
        {"views": []},
        {"image_size": ["a", "b"]},
        {"image_size": [-5, 0]},
        {"image_size": [200_000, 200_000]},
        {"image_size": [True, True]},
        {"image_size": [64]},
        {"success_threshold": "abc"},
        {"success_threshold": 7},
        {"predicts_success": "x"},
        {"supports_restore": None},
    ],
)
def test_metadata_of_another_form_is_refused(change: dict[str, Any]) -> None:
    parameters = {"views": ["front"], "image_size": [64, 64], "predicts_success": True, "supports_restore": False}
    with serve_body(json.dumps({"parameters": parameters}).encode()) as url:
        assert RemoteRewardModel(RewardClient(url)).input_spec.image_size == (64, 64)
    with serve_body(json.dumps({"parameters": {**parameters, **change}}).encode()) as url:
        for use in (
            RemoteRewardModel,
            lambda client: EpisodeScorer(client, 1, ShapingConfig(gamma=0.99), "environment"),
        ):
            with pytest.raises(UnexpectedResponseError, match=f"{next(iter(change))} cannot be"):
                use(RewardClient(url, retry_timeout_s=1))


@pytest.mark.parametrize("env_ids", [5, "a", None, {}, [[1]]])
def test_lost_episodes_that_are_no_numbers_are_none(env_ids: object) -> None:
    frames = {"front": np.zeros((1, 8, 8, 3), np.uint8)}
    body = json.dumps({"error": "gone", "env_ids": env_ids}).encode()
    with serve_body(body, status=410) as url, pytest.raises(EpisodeLostError, match="gone") as lost:
        RewardClient(url, retry_timeout_s=1).step([0], [0], [1], frames)
    assert lost.value.env_ids == []


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
    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    with serve_in_thread(server):
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            stopped.set()


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
