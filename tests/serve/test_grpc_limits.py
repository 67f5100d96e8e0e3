"""gRPC calls are refused before their message is read; messages and connections are limited."""

from __future__ import annotations

import json
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2
from known_models import HashModel
from services import serving_grpc

from embodied_rm.errors import UserError
from embodied_rm.serve.descriptors import raise_descriptor_limit
from embodied_rm.serve.grpc.messages import SESSION_CLASSES
from embodied_rm.serve.service_config import ServeConfig, ServeLimits

RESET = "/embodied_rm.RewardService/Reset"
KEY = (("authorization", "Bearer secret"),)


@contextmanager
def grpc_port(model: HashModel, **limits: float) -> Iterator[int]:
    """Run a service with a key and yield its gRPC port."""
    config = ServeConfig(port=0, grpc_port=0, drain_timeout_s=1, limits=ServeLimits(**limits))
    with serving_grpc(model, config) as (_, port):
        yield port


def test_message_is_not_awaited_where_its_content_does_not_matter() -> None:
    never = threading.Event()

    def endless() -> Iterator[bytes]:
        never.wait()
        yield b""

    def call(channel: grpc.Channel, method: str, metadata: tuple = ()) -> grpc.RpcError:
        with pytest.raises(grpc.RpcError) as raised:
            channel.stream_unary(method)(endless(), timeout=20, metadata=metadata)
        return raised.value

    try:
        with grpc_port(HashModel(), body_timeout_s=0.5) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert call(channel, RESET).code() is grpc.StatusCode.UNAUTHENTICATED
            assert call(channel, "/embodied_rm.RewardService/Other").code() is grpc.StatusCode.UNIMPLEMENTED
            health = channel.stream_unary("/grpc.health.v1.Health/Check")(endless(), timeout=20)
            assert health_pb2.HealthCheckResponse.FromString(health).status == 1
            assert "did not arrive in 0.5 s" in call(channel, RESET, KEY).details()
            with pytest.raises(grpc.RpcError, match="no message"):
                channel.stream_unary(RESET)(iter(()), timeout=20, metadata=KEY)
    finally:
        never.set()


def test_messages_count_as_queued_memory() -> None:
    header = {"views": ["front"], "frames": {"shape": [1, 1, 512, 512, 3]}, "instructions": ["lift it"]}
    header |= {"env_ids": [0], "episode_ids": [0]}

    def reset(channel: grpc.Channel, client_id: str) -> grpc.StatusCode:
        header_json = json.dumps({**header, "client_id": client_id}).encode()
        request = SESSION_CLASSES["SessionRequest"](header=header_json, body=bytes(512 * 512 * 3))
        call = channel.unary_unary(RESET).future(request.SerializeToString(), timeout=20, metadata=KEY)
        call.exception(timeout=60)
        return call.code()

    limits = {"max_body_mb": 1, "max_queue_mb": 2}
    with (
        grpc_port(HashModel(batch_s=1.0), **limits) as port,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
        ThreadPoolExecutor(4) as threads,
    ):
        codes = list(threads.map(reset, [channel] * 4, "abcd"))
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_excess_and_silent_connections_are_closed() -> None:
    with grpc_port(HashModel(), max_connections=10, body_timeout_s=1.0) as port:
        connections = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(30)]
        closed = 0
        for connection in connections:
            try:
                while connection.recv(4096):
                    pass
            except TimeoutError:
                continue
            except OSError:
                pass
            closed += 1
        assert closed == 30
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20) == b"\x08\x01"


def test_descriptors_suffice_for_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (600, hard))
        raise_descriptor_limit(1024, 2)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (2432, hard)
        raise_descriptor_limit(10, 1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (2432, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 1024))
    with pytest.raises(UserError, match="max_connections=1024 needs 1280 open files, and this system permits 1024"):
        raise_descriptor_limit(1024, 1)
