"""Misbehaving connections are closed with the documented status, and the service stays available."""

from __future__ import annotations

import gc
import json
import socket
import struct
import time

import httpx
import pytest
from strict import PIXELS, VALID_HEADER
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from embodied_rm.client.wire import HEADER_LENGTH_HEADER


def address(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rpartition(":")[2])


def send_raw(url: str, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """Send bytes in parts and return the response, until the connection is closed."""
    with socket.create_connection(address(url), 10) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:
                break
            time.sleep(pause_s)
        connection.settimeout(5)
        response = b""
        try:
            while part := connection.recv(65536):
                response += part
        except OSError:
            pass
        return response


HEAD = b"POST /v1/reset HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/octet-stream\r\n"


@pytest.mark.parametrize(
    ("parts", "pause_s", "status"),
    [
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)], 0, b"400"),
        ([b"GET /nowhere\r\n\r\n"], 0, b"40"),
        ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], 0, b"400"),
        ([b"GET /nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x-pad: " + b"y" * 70000 + b"\r\n\r\n"], 0, b"4"),
        ([b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"a: b\r\n" * 9000], 0, b"431"),
        ([HEAD + b"content-length: 10\r\ncontent-length: 11\r\n\r\n"], 0, b"400"),
        ([HEAD + b"content-length: -1\r\n\r\n"], 0, b"400"),
        ([HEAD + b"content-length: 10\r\ntransfer-encoding: chunked\r\n\r\n"], 0, b"400"),
        ([HEAD + b"content-length: 99999999999\r\n\r\n"], 0, b"4"),
        ([HEAD + b"content-length: 300000\r\n\r\n"], 0, b"413"),
        ([HEAD + b"transfer-encoding: chunked\r\n\r\n", *[b"8000\r\n" + bytes(32768) + b"\r\n"] * 12], 0, b"413"),
        ([HEAD + b"transfer-encoding: chunked\r\n\r\n", b"zz\r\n"], 0, b"400"),
        ([HEAD + b"content-length: 1000\r\n\r\n", *[b"x"] * 12], 0.1, b"408"),
        ([HEAD + b"content-length: 1000\r\n\r\n", *[b"x"] * 12], 0.1, b"408"),
        ([b"GET / HTTP/1.1\r\n", *[b"a: b\r\n"] * 12], 0.1, b"408"),
        ([b"G", *[b"E"] * 12], 0.1, b"4"),
    ],
)
def test_misbehaving_connection_is_closed(url: str, parts: list[bytes], pause_s: float, status: bytes) -> None:
    response = send_raw(url, *parts, pause_s=pause_s)
    assert response.startswith(b"HTTP/1.1 " + status) and b" 50" not in response[:16]


def test_silent_connection_is_closed(url: str) -> None:
    start = time.monotonic()
    assert send_raw(url).startswith((b"HTTP/1.1 408", b""))
    assert time.monotonic() - start < 4


def test_only_excess_connections_are_closed(url: str) -> None:
    connections = [socket.create_connection(address(url), 5) for _ in range(60)]
    time.sleep(0.2)
    closed = 0
    for connection in connections:
        connection.setblocking(False)
        try:
            closed += connection.recv(1) == b""
        except BlockingIOError:
            pass
        except OSError:
            closed += 1
    for connection in connections:
        connection.close()
    assert 18 <= closed <= 25
    time.sleep(0.2)


def test_pipelined_requests_are_answered_in_order(url: str) -> None:
    request = b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    last = b"GET /v2 HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    response = send_raw(url, request * 5 + last)
    assert response.count(b"HTTP/1.1 200 OK") == 6 and response.index(b'"live"') < response.index(b'"extensions"')


PIPELINED = {
    "requests without a body": b"GET /v1/metadata HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "chunked requests": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "requests with a body": HEAD + b"content-length: 3\r\n\r\nabc",
    "line feeds alone": b"GET /v1/metadata HTTP/1.1\nhost: 127.0.0.1\n\n",
}


@pytest.mark.parametrize("request_bytes", PIPELINED.values(), ids=PIPELINED.keys())
def test_pipelined_requests_wait_unparsed(url: str, request_bytes: bytes) -> None:
    most = 0
    with socket.create_connection(address(url), 5) as connection:
        connection.settimeout(0.2)
        for _ in range(40):
            try:
                connection.sendall(request_bytes * 5000)
            except OSError:  # the service reads no more
                break
            most = max(most, count_request_cycles())
        most = max(most, count_request_cycles())
    assert most <= 20


def count_request_cycles() -> int:
    return sum(type(item) is RequestResponseCycle for item in gc.get_objects())


def test_upgrade_to_another_protocol_is_ignored(url: str) -> None:
    header_json = json.dumps({**VALID_HEADER, "client_id": "upgrade"}).encode()
    length = f"{HEADER_LENGTH_HEADER}: {len(header_json)}\r\ncontent-length: {len(header_json + PIXELS)}\r\n\r\n"
    upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
    last = b"GET /v2 HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    request = HEAD + upgrade + length.encode() + header_json + PIXELS
    for parts in ([request + last], [request[:-1], request[-1:], last], [request[:90], request[90:] + last]):
        response = send_raw(url, *parts, pause_s=0.05)
        assert response.count(b"HTTP/1.1 200 OK") == 2 and b'"extensions"' in response, response
    assert send_raw(url, b"CONNECT example.org:443 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_new_connection_replaces_the_longest_idle_one(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        assert client.get("/v2/health/live").status_code == 200
        flood = [socket.create_connection(address(url), 5) for _ in range(120)]
        assert httpx.get(f"{url}/v2/health/live", timeout=2).status_code == 200
        assert client.get("/v2/health/live").status_code == 200
        for connection in flood:
            connection.close()
    time.sleep(0.2)


def test_disconnect_during_a_request_is_harmless(url: str) -> None:
    header_json = json.dumps(VALID_HEADER).encode()
    for cut in (0, 5, 300):
        with socket.create_connection(address(url), 5) as connection:
            head = (
                HEAD
                + f"{HEADER_LENGTH_HEADER}: {len(header_json)}\r\n"
                f"content-length: {len(header_json) + len(PIXELS)}\r\n\r\n".encode()
            )
            connection.sendall(head + (header_json + PIXELS)[:cut])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert httpx.get(f"{url}/v2/health/live", timeout=10).status_code == 200
