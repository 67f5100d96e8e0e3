"""A machine with many client names has the share of one machine, and a client that does not read delays nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count

import grpc
import httpx
import numpy as np
import pytest
from known_models import HashModel
from services import frames_by_view, random_videos, serving, serving_grpc
from strict import BINARY, LIFT

from embodied_rm.client.reward_client import RewardClient
from embodied_rm.client.wire import HEADER_LENGTH_HEADER
from embodied_rm.serve.grpc.messages import INFERENCE_CLASSES
from embodied_rm.serve.peer import PEER, grpc_peer, http_peer
from embodied_rm.serve.request_errors import RequestError
from embodied_rm.serve.request_queue import STEP, FairQueue, WorkItem
from embodied_rm.serve.service_config import ServeConfig, ServeLimits
from embodied_rm.types import Views

ATTACKER, OTHER = "127.0.0.2", "127.0.0.3"
FRAMES = random_videos(1, 1)[0]
NAMES = count()


def reset(url: str, client_id: str, address: str = ATTACKER, **fields: object) -> httpx.Response:
    """Begin an episode from an address of this machine."""
    header = {
        "client_id": client_id, "env_ids": [0], "episode_ids": [0], "instructions": [LIFT], "views": ["front", "wrist"],
        "frames": {"shape": [1, 2, 8, 8, 3]}, **fields,
    }  # fmt: skip
    header_json = json.dumps(header).encode()
    headers = {HEADER_LENGTH_HEADER: str(len(header_json)), "content-type": BINARY}
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address, verify=False), timeout=30) as client:
        return client.post(f"{url}/v1/reset", content=header_json + FRAMES.tobytes(), headers=headers)


def config(**limits: float) -> ServeConfig:
    return ServeConfig(port=0, drain_timeout_s=5, max_batch_size=1, limits=ServeLimits(**limits))


def test_queue_is_shared_by_machines_and_not_by_names() -> None:
    with serving(HashModel(batch_s=0.3), config=config(max_queue=20)) as url, ThreadPoolExecutor(40) as threads:
        flood = [threads.submit(reset, url, f"name{next(NAMES)}") for _ in range(40)]
        wait(flood, return_when=FIRST_COMPLETED)
        assert [reset(url, f"honest{i}", OTHER).status_code for i in range(3)] == [200] * 3
        statuses = Counter(future.result().status_code for future in flood)
    assert set(statuses) == {200, 429}


def test_episodes_are_shared_by_machines_and_not_by_names() -> None:
    with serving(HashModel(), config=config(max_sessions=10)) as url:
        statuses = [reset(url, f"name{i}").status_code for i in range(12)]
        assert statuses == [200] * 10 + [429] * 2
        assert [reset(url, f"honest{i}", OTHER).status_code for i in range(7)] == [200] * 5 + [429] * 2
        assert [reset(url, f"name{i}").status_code for i in range(12, 14)] == [429] * 2, "each has its half"
        newest = httpx.post(
            f"{url}/v1/end", content=b'{"client_id": "name9", "env_ids": [0], "episode_ids": [0]}',
            headers={"content-type": BINARY},
        )  # fmt: skip
        assert newest.json()["num_ended"] == 1, "the longest idle episodes end first"


def test_names_of_one_machine_share_all_of_it() -> None:
    """As behind a proxy that names nobody: nothing is held back for others."""
    with serving(HashModel(), config=config(max_sessions=10)) as url:
        assert [reset(url, f"name{i}").status_code for i in range(10)] == [200] * 10


def item(peer: str, client_id: str) -> WorkItem:
    views = Views(names=("front",), frames=np.zeros((1, 1, 4, 4, 3), np.uint8))
    return WorkItem(client_id=client_id, kind=STEP, num_rows=1, views=views, deadline=10.0, peer=peer)


def put(queue: FairQueue, peer: str, client_id: str) -> WorkItem:
    token = PEER.set(peer)
    queued = item(peer, client_id)
    try:
        queue.put(queued)
    finally:
        PEER.reset(token)
    return queued


def test_turns_go_round_machines_and_then_round_clients() -> None:
    async def run() -> None:
        queue = FairQueue(ServeLimits(max_queue=100))
        for name in "abcdaa":
            put(queue, "x", name)
        put(queue, "y", "e")
        put(queue, "y", "e")
        assert "".join(taken.client_id for taken in queue.take(4, 0)) == "aebe"
        assert "".join(taken.client_id for taken in queue.take(9, 0)) == "cdaa"

    asyncio.run(run())


def test_full_queue_drops_the_newest_request_of_the_largest_machine() -> None:
    async def run() -> None:
        queue = FairQueue(ServeLimits(max_queue=4))
        many = [put(queue, "x", name) for name in "abcd"]
        assert put(queue, "y", "e") and put(queue, "y", "f")
        with pytest.raises(RequestError, match="4 requests are queued already"):
            put(queue, "y", "g")
        with pytest.raises(RequestError, match="4 requests are queued already"):
            put(queue, "x", "g")
        assert len(queue) == 4 and sum(dropped.result.done() for dropped in many) == 2
        for dropped in many:
            if dropped.result.done():
                with pytest.raises(RequestError, match="other machines need the queue"):
                    dropped.result.result()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("ipv4:10.0.0.1:50", "10.0.0.1"),
        ("ipv6:%5B::1%5D:50", "::/64"),
        ("ipv6:[2001:db8:0:1:a:b:c:d]:50", "2001:db8:0:1::/64"),
        ("ipv6:[::ffff:10.0.0.1]:50", "10.0.0.1"),
        ("unix:", ""),
    ],
)
def test_peer_is_a_machine_whatever_its_port(text: str, peer: str) -> None:
    assert grpc_peer(text) == peer
    host = text.partition(":")[2].replace("%5B", "[").replace("%5D", "]").rpartition(":")[0].strip("[]")
    assert http_peer((host, 7)) == peer and http_peer(None) == ""


def infer_request(num_rows: int, num_frames: int) -> bytes:
    """A request of few bytes whose response has megabytes."""
    texts = json.dumps([LIFT] * num_rows)
    header = {
        "inputs": [
            {"name": "frames", "shape": [num_rows, num_frames, 1, 1, 1, 3], "datatype": "UINT8",
             "parameters": {"binary_data_size": num_rows * num_frames * 3}},
            {"name": "views", "shape": [1], "datatype": "BYTES", "data": ["front"]},
            {"name": "instruction", "shape": [num_rows], "datatype": "BYTES", "data": json.loads(texts)},
        ]
    }  # fmt: skip
    header_json, pixels = json.dumps(header).encode(), bytes(num_rows * num_frames * 3)
    head = f"POST /v2/models/reward/infer HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {BINARY}\r\n"
    lengths = (
        f"inference-header-content-length: {len(header_json)}\r\ncontent-length: {len(header_json + pixels)}\r\n\r\n"
    )
    return (head + lengths).encode() + header_json + pixels


@contextmanager
def unread(url: str, request: bytes) -> Iterator[socket.socket]:
    """A connection that asks and does not read."""
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        connection.sendall(request)
        yield connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the service has closed a connection that reads the rest of its response now."""
    connection.settimeout(2.0)
    try:
        while part := connection.recv(1 << 20):
            assert part
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "limits", [{"body_timeout_s": 1.0}, {"max_queue_mb": 1.0, "max_body_mb": 1.0}], ids=["time", "memory"]
)
def test_client_that_does_not_read_is_closed(limits: dict[str, float]) -> None:
    """Its response of 7 MB is more than the kernel keeps, and it delays no other client."""
    request = infer_request(512, 250)
    with serving(HashModel(), config=config(**limits)) as url, unread(url, request) as connection:
        with RewardClient(url) as client:
            client.reset([0], [0], [LIFT], frames_by_view(FRAMES))
        assert select.select([connection], [], [], 60)[0], "the response has begun"
        time.sleep(3)
        assert is_closed(connection)


def test_slow_client_gets_its_response() -> None:
    request = infer_request(512, 250)
    with serving(HashModel(), config=config(body_timeout_s=10)) as url, unread(url, request) as connection:
        assert select.select([connection], [], [], 60)[0]
        time.sleep(2)
        assert not is_closed(connection), "it is kept alive"


def infer_message(num_rows: int, num_frames: int) -> bytes:
    """`infer_request` for gRPC."""
    request = INFERENCE_CLASSES["ModelInferRequest"](model_name="reward")
    texts = {"views": [b"front"], "instruction": [LIFT.encode()] * num_rows}
    request.inputs.add(name="frames", datatype="UINT8", shape=[num_rows, num_frames, 1, 1, 1, 3])
    request.raw_input_contents.append(bytes(num_rows * num_frames * 3))
    for name, values in texts.items():
        request.inputs.add(name=name, datatype="BYTES", shape=[len(values)])
        request.raw_input_contents.append(b"".join(struct.pack("<I", len(value)) + value for value in values))
    return bytes(request.SerializeToString())


def read_no_more(listener: socket.socket, port: int) -> None:
    """Forward a client's bytes to a port, and none of the response after the first 30 kB."""
    client, server = listener.accept()[0], socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.connect(("127.0.0.1", port))

    def forward() -> None:
        with contextlib.suppress(OSError):
            while part := client.recv(1 << 16):
                server.sendall(part)

    threading.Thread(target=forward, daemon=True).start()
    num_bytes = 0
    while num_bytes < 30_000:
        part = server.recv(4096)
        with contextlib.suppress(OSError):
            client.sendall(part)
        num_bytes += len(part)


def reserved_bytes(url: str) -> float:
    lines = httpx.get(f"{url}/metrics", headers={"authorization": "Bearer secret"}).text.splitlines()
    (line,) = [line for line in lines if "buffered_request_bytes " in line and line[0] != "#"]
    return float(line.split()[1])


def test_grpc_response_that_is_not_read_is_dropped() -> None:
    options = config(body_timeout_s=3.0)
    with (
        serving_grpc(HashModel(), replace(options, grpc_port=0)) as (url, port),
        socket.create_server(("127.0.0.1", 0)) as listener,
        grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}", [("grpc.max_receive_message_length", -1)]) as c,
    ):
        threading.Thread(target=read_no_more, args=(listener, port), daemon=True).start()
        infer = c.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        call = infer.future(infer_message(512, 250), timeout=120, metadata=(("authorization", "Bearer secret"),))
        wait_until(lambda: reserved_bytes(url) > 1e6, 60)
        wait_until(lambda: reserved_bytes(url) == 0, 15)
        call.cancel()


def wait_until(is_true: Callable[[], bool], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
