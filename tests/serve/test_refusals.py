"""Invalid requests are rejected with the documented status, and the service stays available."""

from __future__ import annotations

import itertools
import json
import threading
import zlib
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from known_models import HashModel
from safetensors.torch import load as parse_tensors
from services import frames_by_view, serving
from strict import BINARY, LIFT, PIXELS, VALID_HEADER, VIDEO, post

from embodied_rm.checkpoint_io import pack_json, to_safetensors
from embodied_rm.client.reward_client import RewardClient
from embodied_rm.client.wire import HEADER_LENGTH_HEADER
from embodied_rm.serve.service_config import ServeConfig, ServeLimits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client_id": ""}, "client_id"),
        ({"client_id": "a/../b"}, "client_id"),
        ({"client_id": "x" * 200}, "client_id"),
        ({"client_id": 3}, "client_id"),
        ({"env_ids": []}, "env_ids: got 0"),
        ({"env_ids": [0]}, "episode_ids: got 2"),
        ({"env_ids": [1, 1]}, "a duplicate"),
        ({"env_ids": [-1, 0]}, "-1"),
        ({"env_ids": [1.0, 0]}, "Expected `int`"),
        ({"env_ids": [True, 0]}, "Expected `int`"),
        ({"env_ids": ["0", "1"]}, "Expected `int`"),
        ({"env_ids": [2**60, 0]}, "2^53"),
        ({"env_ids": list(range(9)), "episode_ids": [0] * 9}, "from 1 to 8"),
        ({"episode_ids": [0]}, "episode_ids: got 1"),
        ({"instructions": [LIFT]}, "instructions: got 1"),
        ({"instructions": [LIFT, ""]}, "1 to 40 characters"),
        ({"instructions": [LIFT, "x" * 41]}, "41 characters"),
        ({"instructions": [LIFT, "a\x00b"]}, "control"),
        ({"instructions": [LIFT, "a; then "]}, "empty subgoal"),
        ({"views": ["front"]}, "frames.shape"),
        ({"views": ["front", "front"]}, "each once"),
        ({"views": ["front", "a b"]}, "names of 1"),
        ({"views": ["a", "b", "c", "d"]}, "from 1 to 3"),
        ({"frames": {"shape": [2, 2, 8, 8]}}, "frames.shape"),
        ({"frames": {"shape": [2, 2, 8, 8, 4]}}, "frames.shape"),
        ({"frames": {"shape": [2, 2, 8, 9, 3]}}, "bytes"),
        ({"frames": {"shape": [2, 2, 65, 8, 3]}}, "from 1 to 64"),
        ({"frames": {"shape": [2, 2, -8, -8, 3]}}, "from 1 to 64"),
        ({"frames": {"shape": [2, 2, 2**62, 8, 3]}}, "from 1 to 64"),
        ({"frames": {"shape": [2, 2, 0, 8, 3]}}, "from 1 to 64"),
        ({"frames": {"shape": [2, 2], "image_bytes": [1] * 4}}, "4 bytes in total"),
        ({"frames": {"shape": [2, 2], "image_bytes": [768, 0, 384, 384]}}, "frames.image_bytes"),
        ({"frames": {"shape": [2, 2], "image_bytes": [384] * 3}}, "frames.image_bytes"),
        ({"frames": {"shape": [2, 2], "image_bytes": [192] * 4}}, "neither a JPEG nor a PNG"),
        ({"frames": {"shape": [2, 2, 8, 8, 3], "url": "http://evil.example/x.png"}}, "unknown field"),
        ({"path": "/etc/passwd"}, "unknown field"),
        ({"return_state": "yes"}, "Expected `bool`"),
    ],
)
def test_invalid_field_is_named(url: str, change: dict[str, Any], message: str) -> None:
    response = post(url, {**VALID_HEADER, **change})
    assert response.status_code == 422 and message in response.json()["error"], response.text


@pytest.mark.parametrize("missing", list(VALID_HEADER))
def test_missing_field_is_named(url: str, missing: str) -> None:
    response = post(url, {key: value for key, value in VALID_HEADER.items() if key != missing})
    assert response.status_code == 422 and missing in response.json()["error"]


def test_wrong_payload_length_is_rejected(url: str) -> None:
    for blob in (PIXELS[:-1], PIXELS + b"x", b""):
        assert post(url, VALID_HEADER, blob).status_code == 422
    assert post(url, {"client_id": "r", "env_ids": [0], "episode_ids": [0]}, b"x", "end").status_code == 400


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b'{"client_id": "\xc3\x28"}',
        b"[" * 3000,
        b'{"a":' * 600 + b"1" + b"}" * 600,
        b'{"env_ids": [NaN]}',
        b'{"env_ids": [1e400]}',
        b'{"env_ids": [' + b"9" * 3000 + b"]}",
        b"\x80\x04\x95canary",
    ],
)
def test_invalid_json_is_rejected(url: str, text: bytes) -> None:
    assert post(url, text).status_code in (400, 422)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({HEADER_LENGTH_HEADER: "-1"}, 400),
        ({HEADER_LENGTH_HEADER: "1e3"}, 400),
        ({HEADER_LENGTH_HEADER: "9" * 30}, 400),
        ({HEADER_LENGTH_HEADER: "0"}, 400),
        ({HEADER_LENGTH_HEADER: "٣"}, 400),
        ({HEADER_LENGTH_HEADER: "999999"}, 413),
        ({HEADER_LENGTH_HEADER: "3000"}, 400),
        ({"x-timeout-ms": "soon"}, 400),
        ({"x-timeout-ms": "0"}, 504),
    ],
)
def test_invalid_http_header_is_rejected(url: str, headers: dict[str, str], status: int) -> None:
    header_json = json.dumps(VALID_HEADER).encode()
    pairs = [(b"content-type", BINARY.encode()), (HEADER_LENGTH_HEADER.encode(), str(len(header_json)).encode())]
    pairs = [pair for pair in pairs if pair[0].decode() not in headers]
    extra_pairs = [(key.encode(), value.encode()) for key, value in headers.items()]
    assert (
        httpx.post(f"{url}/v1/reset", content=header_json + PIXELS, headers=pairs + extra_pairs).status_code == status
    )


def test_repeated_length_header_is_rejected(url: str) -> None:
    header_json = json.dumps(VALID_HEADER).encode()
    repeated = [(HEADER_LENGTH_HEADER, str(len(header_json))), (HEADER_LENGTH_HEADER, "3"), ("content-type", BINARY)]
    assert httpx.post(f"{url}/v1/reset", content=header_json + PIXELS, headers=repeated).status_code == 400


def test_more_than_100_headers_are_rejected(url: str) -> None:
    few, many = ({f"x-{i}": "1" for i in range(count)} for count in (80, 120))
    assert httpx.get(f"{url}/v1/metadata", headers=few).status_code == 200
    assert httpx.get(f"{url}/v1/metadata", headers=many).status_code == 431


def test_no_method_on_any_path_gives_a_server_error(url: str) -> None:
    paths = ["/", "/v1/reset", "/v1/step", "/v1/end", "/v1/restore", "/v1/metadata", "/v2", "/v2/models/reward"]
    paths += ["/v2/models/reward/infer", "/v2/health/live", "/metrics", "/evaluate_batch_npy", "/health", "/v1/%2e%2e"]
    paths += ["//", "/v2/models/" + "x" * 5000 + "/infer", "/v2/models/%F0%9F%A4%96"]
    with httpx.Client(base_url=url) as client:
        for path, method in itertools.product(
            paths, ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "FOO"]
        ):
            assert client.request(method, path, content=b"{}").status_code < 500, (path, method)


def test_wrong_api_keys_are_rejected() -> None:
    with serving(HashModel(), api_key="secret") as url, httpx.Client(base_url=url) as client:
        statuses = {client.get("/v1/metadata", headers={"x-api-key": f"key {i}"}).status_code for i in range(1000)}
        assert statuses == {401}
        assert client.get("/v1/metadata", headers={"x-api-key": "secret"}).status_code == 200


def post_restore(url: str, content: bytes, **change: Any) -> httpx.Response:
    header = {
        "client_id": "m",
        "env_ids": [0],
        "episode_ids": [0],
        "steps": [1],
        "state_rows": [0],
        "num_state_rows": 1,
    }
    header |= {"state_bytes": len(content)}
    return post(url, {**header, **change}, content, "restore")


def test_invalid_state_is_rejected(url: str) -> None:
    with RewardClient(url) as client:
        client.reset([0], [0], [LIFT], frames_by_view(VIDEO[0, :1]))
        state = client.step([0], [0], [1], frames_by_view(VIDEO[1, :1]), return_state=True).state
    assert state is not None and post_restore(url, state).status_code == 200
    assert post_restore(url, state, env_ids=[0], steps=[0]).status_code == 409  # the episode is at a later step
    length = int.from_bytes(state[:8], "little")
    header = state[8 : 8 + length]
    invalid_states = [
        b"",
        b"\x80\x04\x95canary",
        state[:-1],
        (1 << 62).to_bytes(8, "little") + state[8:],
        state[:8] + header.replace(b"I64", b"F64") + state[8 + length :],
        state[:8] + header.replace(b"0.digest", b"0.other_") + state[8 + length :],
        state[:8] + header.replace(b'"num_subgoals"', b'"num_sub_goal"') + state[8 + length :],
        state.replace(LIFT.encode(), b'"' * len(LIFT)),
        state.replace(LIFT.encode(), b"\xff" * len(LIFT)),
    ]
    for content in invalid_states:
        response = post_restore(url, content, env_ids=[5])
        assert response.status_code == 422 and "state" in response.json()["error"], response.text
    assert post_restore(url, state, env_ids=[6], state_rows=[1]).status_code == 422
    assert post_restore(url, state, env_ids=[6], num_state_rows=2).status_code == 422
    assert post_restore(url, state, env_ids=[6], state_bytes=3).status_code == 422


def test_restored_instructions_obey_the_limits(url: str) -> None:
    with RewardClient(url) as client:
        client.reset([0], [0], [LIFT], frames_by_view(VIDEO[0, :1]))
        state = client.step([0], [0], [1], frames_by_view(VIDEO[1, :1]), return_state=True).state
    assert state is not None
    tensors = parse_tensors(state)
    for subgoals in ([["x" * 41]], [["x" * 4000]], [["\x1b[2J"]], [["a"] * 40]):
        changed = tensors | {"subgoals": pack_json(subgoals), "num_subgoals": torch.tensor([len(subgoals[0])])}
        changed |= {f"{index}.digest": tensors["0.digest"].clone() for index in range(len(subgoals[0]))}
        response = post_restore(url, to_safetensors(changed), env_ids=[5])
        assert response.status_code == 422, response.text
        assert "instructions" in response.text or "40 subgoals, at most 32" in response.text


CRC32_MULTIPLE = np.frombuffer((0x1DB710641).to_bytes(5, "little"), np.uint8)
"""Bytes that change no CRC-32 when they are added (exclusive or) anywhere."""


def test_only_an_identical_request_is_a_retry(url: str) -> None:
    header = {**VALID_HEADER, "client_id": "retry"}
    assert post(url, header).status_code == 200
    assert post(url, header).status_code == 200
    collision = bytearray(PIXELS)
    collision[7:12] = (np.frombuffer(PIXELS, np.uint8)[7:12] ^ CRC32_MULTIPLE).tobytes()
    assert zlib.crc32(collision) == zlib.crc32(PIXELS)
    changes = [
        {"instructions": ["close it", "open it"]},
        {"views": ["wrist", "front"]},
        {"views": ["front", "side"]},
        {"frames": {"shape": [2, 2, 16, 4, 3]}},
        {"views": ["front"], "frames": {"shape": [2, 1, 8, 16, 3]}},
    ]
    for body, change in [(bytes(collision), {}), *[(PIXELS, change) for change in changes]]:
        response = post(url, header | change, body)
        assert response.status_code == 409 and "has already started" in response.text, (change, response.text)
    step = {name: value for name, value in header.items() if name != "instructions"} | {"steps": [1, 1]}
    assert post(url, step, endpoint="step").status_code == 200
    assert post(url, step, bytes(collision), endpoint="step").status_code == 409


@pytest.mark.parametrize("text", ["\x1b]0;PWNED\x07", "\x9b2J", "\u202egnp", "a\nb"])
def test_errors_quote_no_control_characters(url: str, text: str) -> None:
    for change in ({"client_id": text}, {"views": [text, "front"]}, {"instructions": [text * 30, LIFT]}, {text: 1}):
        message = post(url, VALID_HEADER | change).json()["error"]
        assert message.isprintable(), message
    header = text.translate({ord(char): "x" for char in "\x1b\x07\n"}).encode("latin-1", "replace")
    response = httpx.post(f"{url}/v1/reset", headers={b"content-type": header})
    assert response.status_code == 415 and response.json()["error"].isprintable()


def test_request_counters_are_consistent(url: str) -> None:
    lines = [line for line in httpx.get(f"{url}/metrics").text.splitlines() if not line.startswith("#")]
    accepted = sum(float(line.split()[1]) for line in lines if line.startswith("embodied_rm_accepted_requests_total"))
    answered = sum(float(line.split()[1]) for line in lines if line.startswith("embodied_rm_requests_total"))
    assert accepted == answered > 20
    assert not [line for line in lines if 'status="internal_error"' in line]
    buffered = [line for line in lines if line.startswith("embodied_rm_buffered_request_bytes")]
    assert buffered == ["embodied_rm_buffered_request_bytes 0.0"]


def test_concurrent_requests_are_answered_or_rejected() -> None:
    model = HashModel(batch_s=0.05)
    config = ServeConfig(port=0, max_batch_size=1, limits=ServeLimits(max_queue=4, max_client_share=1.0))
    statuses: list[int] = []
    with serving(model, config=config) as url:

        def send_request(index: int) -> None:
            statuses.append(post(url, {**VALID_HEADER, "client_id": f"r{index}"}).status_code)

        threads = [threading.Thread(target=send_request, args=(index,)) for index in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        response = post(url, VALID_HEADER)
    assert sorted(set(statuses)) == [200, 429] and len(statuses) == 24
    assert 5 <= statuses.count(200) <= 12 and response.status_code == 200
