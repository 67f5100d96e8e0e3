"""Oversized, slow and decompression-bomb requests: python benchmarks/serve_bombs.py

Each request is sent repeatedly. It must be rejected with the documented status, and after a warm-up the service must
grow by at most 1 MiB. Writes a section of docs/results/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

import grpc
from png_files import build_png
from serving import HASH_SERVICE_COMMAND, RunningService, free_port, run_service

from embodied_rm.client.wire import HEADER_LENGTH_HEADER
from embodied_rm.experiments.results_page import write_section

SERVICE_LIMITS = {"max_body_mb": 4.0, "body_timeout_s": 0.5, "max_queue": 64, "max_image_side": 512}
MAX_GROWTH_BYTES = 1 << 20
IDLE_S = 4.0
"""Seconds for the service to return free memory."""
WARM_UP_REQUESTS = 100
NUM_PARALLEL = 8
REQUEST_HEAD = "POST /v1/reset HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/octet-stream\r\n"
Parts = Iterator[bytes]
NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Bomb:
    """A malicious request."""

    name: str
    parts: Callable[[], Parts]
    """Chunks to send."""
    expected_status: tuple[str, ...]
    pause_s: float = 0.0
    """Seconds between two chunks."""


def one_piece(text: bytes, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS) -> Callable[[], Parts]:
    """Return a request as a single chunk."""
    all_headers = {HEADER_LENGTH_HEADER: str(len(text)), "content-length": str(len(text) + len(body)), **headers}
    head = REQUEST_HEAD + "".join(f"{name}: {value}\r\n" for name, value in all_headers.items()) + "\r\n"
    return lambda: iter([head.encode() + text + body])


def png_bomb(width: int, height: int) -> Callable[[], Parts]:
    """Return a request with a small PNG file that declares this size and inflates to it."""
    inflated = zlib.compress(bytes(min(3 * width * height, 50_000_000)), 9)
    return reset_with_image(build_png(width, height, (b"IDAT", inflated)))


def png_text_bomb() -> Callable[[], Parts]:
    """Return a request with a PNG file whose text inflates by a factor of 1000."""
    text = (b"zTXt", b"a\0\0" + zlib.compress(bytes(100_000_000), 9))
    return reset_with_image(build_png(64, 64, *[text] * 8))


def reset_with_image(file: bytes) -> Callable[[], Parts]:
    """Return a reset request with this image."""
    header = {"client_id": "bomb", "env_ids": [0], "episode_ids": [0], "instructions": ["lift"], "views": ["front"]}
    frames = {"shape": [1, 1], "image_bytes": [len(file)]}
    return one_piece(json.dumps({**header, "frames": frames}).encode(), file)


def chunked(pieces: int, size: int) -> Callable[[], Parts]:
    """Return a request with a chunked body."""

    def parts() -> Parts:
        yield (REQUEST_HEAD + f"{HEADER_LENGTH_HEADER}: 2\r\ntransfer-encoding: chunked\r\n\r\n").encode()
        chunk = f"{size:x}\r\n".encode() + bytes(size) + b"\r\n"
        chunks_per_piece = max(1, 65536 // len(chunk))
        yield from repeat(chunk * chunks_per_piece, pieces // chunks_per_piece)

    return parts


def drip(content: bytes, byte: bytes, count: int) -> Callable[[], Parts]:
    """Return a request that sends `content`, then single bytes."""
    return lambda: iter([content, *[byte] * count])


FORM_HEAD = "POST /evaluate_batch_npy HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: multipart/form-data; boundary=x\r\n"
RESTORE_HEADER = (
    b'{"client_id":"r","env_ids":[0],"episode_ids":[0],"steps":[1],'
    b'"state_rows":[0],"num_state_rows":1,"state_bytes":16}'
)
MANY_PARTS = b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n\r\n' * 30_000
MANY_PARTS_LENGTH = f"content-length: {len(MANY_PARTS)}\r\n\r\n".encode()
BOMBS = (
    Bomb("body over the limit, declared", one_piece(b"{}", headers={"content-length": "99999999"}), ("413",)),
    Bomb("body over the limit, chunked", chunked(200, 65536), ("413",)),
    Bomb("a million chunks of one byte", chunked(1_000_000, 1), ("400", "413", "408")),
    Bomb("JSON over the limit", one_piece(b" " * 600_000), ("413",)),
    Bomb("JSON nested 200,000 levels", one_piece(b"[" * 200_000), ("400", "422")),
    Bomb("JSON of 100,000 numbers", one_piece(b'{"env_ids": [' + b"1," * 100_000 + b"1]}"), ("422",)),
    Bomb("a number of 100,000 digits", one_piece(b'{"env_ids": [' + b"9" * 100_000 + b"]}"), ("400", "422")),
    Bomb("PNG of 144 megapixels", png_bomb(12_000, 12_000), ("413",)),
    Bomb("PNG of 400 megapixels", png_bomb(20_000, 20_000), ("413", "422")),
    Bomb("PNG that inflates beyond its declared size", png_bomb(512, 512), ("200", "422", "409")),
    Bomb("PNG with text that inflates 1000 times", png_text_bomb(), ("413", "422")),
    Bomb("state of 2^62 bytes", one_piece(RESTORE_HEADER, (1 << 62).to_bytes(8, "little") + bytes(8)), ("422",)),
    Bomb("compressed body", one_piece(b"{}", zlib.compress(bytes(1_000_000)), {"content-encoding": "gzip"}), ("415",)),
    Bomb("form of 30,000 parts", lambda: iter([FORM_HEAD.encode() + MANY_PARTS_LENGTH + MANY_PARTS]), ("400",)),
    Bomb("one header of 64 KiB", drip(REQUEST_HEAD.encode() + b"a: " + b"b" * 65536, b"\r\n\r\n", 1), ("400", "431")),
    Bomb("10,000 headers", lambda: iter([REQUEST_HEAD.encode() + b"a: b\r\n" * 10_000 + b"\r\n"]), ("400", "431")),
    Bomb("endless headers", drip(REQUEST_HEAD.encode(), b"a", 8), ("408",), 0.1),
    Bomb("endless body", drip((REQUEST_HEAD + "content-length: 1000\r\n\r\n").encode(), b"a", 8), ("408",), 0.1),
    Bomb("silent connection", lambda: iter([]), ("408",), 0.0),
    Bomb("TLS", lambda: iter([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(500)]), ("400",)),
    Bomb("a pickle", one_piece(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94."), ("400",)),
)  # fmt: skip


def send_bomb(service: RunningService, bomb: Bomb) -> str:
    """Send a request. Returns the status, "" if the connection was closed without one."""
    with socket.create_connection(service.address, 10) as connection:
        try:
            for part in bomb.parts():
                connection.sendall(part)
                time.sleep(bomb.pause_s)
        except OSError:
            pass  # the service has closed the connection
        response = b""
        try:
            connection.settimeout(10)
            while len(response) < 12 and (part := connection.recv(4096)):
                response += part
        except OSError:
            pass
    return response[9:12].decode() if response.startswith(b"HTTP/1.1 ") else ""


def send_grpc(port: int, content: bytes, compression: grpc.Compression) -> str:
    """Send a gRPC message of this content. Returns the status."""
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options, compression=compression) as channel:
        try:
            channel.unary_unary("/embodied_rm.RewardService/Reset")(content, timeout=20)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def measure_growth(service: RunningService, num_requests: int, attempt: Callable[[], str]) -> tuple[set[str], int]:
    """Return the statuses and the growth of the service after the warm-up, in bytes."""
    with ThreadPoolExecutor(NUM_PARALLEL) as pool:
        statuses = set(pool.map(lambda _: attempt(), range(WARM_UP_REQUESTS)))
        time.sleep(IDLE_S)
        memory_before = service.memory_bytes()
        statuses |= set(pool.map(lambda _: attempt(), range(num_requests)))
    time.sleep(IDLE_S)
    return statuses, service.memory_bytes() - memory_before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="repetitions of each request")
    parser.add_argument("--page", type=Path, default=Path("docs/results/reliability.md"), help="page with the section")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    rows, failures, port = [], [], free_port()
    with run_service(
        [*HASH_SERVICE_COMMAND, "--grpc-port", str(port), "--limits", json.dumps(SERVICE_LIMITS)]
    ) as service:
        large, grpc_status = bytes(8_000_000), ("RESOURCE_EXHAUSTED",)
        grpcs = {
            "gRPC: message over the limit": grpc.Compression.NoCompression,
            "gRPC: compressed message over the limit": grpc.Compression.Gzip,
        }
        trials: list[tuple[str, tuple[str, ...], Callable[[], str]]] = [
            *((bomb.name, bomb.expected_status, partial(send_bomb, service, bomb)) for bomb in BOMBS),
            *((name, grpc_status, partial(send_grpc, port, large, compression)) for name, compression in grpcs.items()),
        ]
        for name, status, attempt in trials:
            statuses, growth = measure_growth(service, args.times, attempt)
            rows.append(f"| {name} | {', '.join(sorted(statuses)) or 'closed'} | {growth / (1 << 20):+.2f} |")
            logging.info(rows[-1])
            if not statuses <= {*status} or growth > MAX_GROWTH_BYTES:
                failures.append(rows[-1])
    text = [
        "## Malicious requests",
        "",
        f"`python benchmarks/serve_bombs.py`: {WARM_UP_REQUESTS} warm-up requests, then {args.times} requests "
        f"per row, {NUM_PARALLEL} in parallel. Targets: the documented status, and at most 1 MiB of growth.",
        "",
        "| request | status | growth, MiB |",
        "|---|---|---|",
        *rows,
    ]
    write_section(args.page, "serve bombs", "\n".join(text), title="Reliability")
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
