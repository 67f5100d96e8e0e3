"""Fuzzing of the service with mutated messages: python benchmarks/serve_fuzz.py

Valid requests of every kind are mutated: bytes, values, names, lengths. They go to the handlers in process, and over
HTTP and gRPC to a service. Each must be answered, or rejected with a status below 500, in time. Afterwards a valid
episode must be scored correctly. Writes a section of docs/results/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from good_requests import FRAMES, RequestMessage, grpc_calls, make_form, make_messages, make_protobufs
from grpc import StatusCode, aio
from known_models import HashModel, digest_to_progress, initial_digest, next_digest, serve_model
from mutations import RequestMutator
from serving import HASH_SERVICE_COMMAND, RunningService, free_port, run_service
from wire_client import LIFT_INSTRUCTION, VIEW_NAMES, WireConnection, http_head

from embodied_rm.client.reward_client import RewardClient
from embodied_rm.client.wire import HEADER_LENGTH_HEADER, decode_response
from embodied_rm.experiments.results_page import write_section
from embodied_rm.serve.grpc.grpc_server import parse_message
from embodied_rm.serve.grpc.inference import infer as infer_grpc
from embodied_rm.serve.grpc.messages import INFERENCE_CLASSES
from embodied_rm.serve.open_inference import infer
from embodied_rm.serve.request_errors import RequestError
from embodied_rm.serve.robometer_api import evaluate_form
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.service_config import ServeConfig, ServeLimits

FUZZ_LIMITS = ServeLimits(
    max_body_mb=0.25,
    max_envs_per_request=16,
    max_image_side=64,
    max_frames=8,
    max_header_kb=16,
    response_timeout_s=5,
    body_timeout_s=1,
    max_sessions=200_000,
)
HANG_TIMEOUT_S = 20.0
"""Seconds after which a request counts as hanging."""
CHECK_INTERVAL = 10_000
"""Messages between two valid episodes."""
AskFn = Callable[[str, Mapping[str, Any], bytes], Awaitable[tuple[bytes, int]]]
"""(endpoint, header, body) -> response bytes and the length of their JSON."""


class OutcomeCount:
    """Counts of outcomes, and descriptions of failures."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []

    def record(self, outcome: str, failure: str = "") -> None:
        """Record one message."""
        self.outcomes[outcome] += 1
        if failure:
            self.failures.append(failure)


async def fuzz_in_process(count: OutcomeCount, total: int) -> None:
    """Pass mutated messages directly to the handlers."""
    handle = serve_model(HashModel())
    service = RewardService(handle, ServeConfig(limits=FUZZ_LIMITS))
    async with service:
        loop = asyncio.get_running_loop()
        state = await make_state(service)
        valid_messages, (content_type, body) = make_messages(state), make_form()
        grpc = [(kind, message.SerializeToString()) for kind, message in make_protobufs(valid_messages)]
        mutator = RequestMutator(0)

        async def send(index: int) -> None:
            deadline = loop.time() + 5
            match index % 8:
                case 6:
                    kind, content = mutator.rng.choice(grpc)
                    message = parse_message(kind, mutator.mutate_bytes(content))
                    if kind is INFERENCE_CLASSES["ModelInferRequest"]:
                        await infer_grpc(service, message, deadline)
                    else:
                        await service.handlers["reset"](message.header, memoryview(message.body), deadline)
                case 7:
                    await evaluate_form(service, content_type, mutator.mutate_bytes(body), "front", deadline)
                case _:
                    mutated = mutator.mutate_message(mutator.rng.choice(valid_messages))
                    if mutated.kind == "infer":
                        await infer(service, mutated.header, memoryview(mutated.body), deadline)
                    else:
                        await service.handlers[mutated.kind](mutated.header, memoryview(mutated.body), deadline)

        for index in range(total):
            await record_outcome(count, send(index), f"in process, {index}")
            if index % CHECK_INTERVAL == 0:
                await check_in_process(service, count, index)
                logging.info("in process: %d of %d, %s", index, total, dict(count.outcomes))
    handle.executor.shutdown()


async def record_outcome(count: OutcomeCount, attempt: Awaitable[Any], location: str) -> None:
    """Await a request and record its outcome."""
    try:
        await asyncio.wait_for(attempt, HANG_TIMEOUT_S)
        count.record("answered")
    except RequestError as error:
        count.record(str(error.code.http_status), f"{location}: {error}" if error.code.http_status >= 500 else "")
    except TimeoutError:
        count.record("hangs", f"{location}: hangs")
    except Exception as error:
        count.record("exception", f"{location}: {type(error).__name__}: {error}")
        logging.exception("a message raised an unexpected exception")
        if len(count.failures) > CHECK_INTERVAL:
            raise


async def make_state(service: RewardService) -> bytes:
    """Return the serialized state of two episodes."""
    episode_ids = {
        "client_id": "m",
        "env_ids": [0, 1],
        "episode_ids": [0, 0],
        "views": VIEW_NAMES,
        "frames": {"shape": [2, 2, 8, 8, 3]},
    }
    header = {**episode_ids, "instructions": [LIFT_INSTRUCTION, "open it"], "return_state": True}
    deadline = asyncio.get_running_loop().time() + 5
    _, blobs = await service.handlers["reset"](json.dumps(header).encode(), memoryview(FRAMES[0].tobytes()), deadline)
    return bytes(blobs[-1])


def expected_progress() -> float:
    """Return the progress of the valid episode after its second frame."""
    digest = next_digest(initial_digest(LIFT_INSTRUCTION, FRAMES[0, 0]), FRAMES[1, 0])
    return float(digest_to_progress(np.array([digest]))[0])


async def check_valid_episode(ask: AskFn, count: OutcomeCount, episode: int) -> None:
    """Check that a valid episode gets the right progress."""
    episode_ids = {
        "client_id": "golden",
        "env_ids": [0],
        "episode_ids": [episode],
        "views": VIEW_NAMES,
        "frames": {"shape": [1, 2, 8, 8, 3]},
    }
    for endpoint, fields, frames in (
        ("reset", {"instructions": [LIFT_INSTRUCTION]}, FRAMES[0, 0]),
        ("step", {"steps": [1]}, FRAMES[1, 0]),
    ):
        answer, length = await ask(endpoint, {**episode_ids, **fields}, frames.tobytes())
    value = float(decode_response(answer, length)[1]["progress"][0])
    if value != np.float32(expected_progress()):
        count.record("wrong", f"after {episode} messages a valid episode gets {value}")


async def check_in_process(service: RewardService, count: OutcomeCount, episode: int) -> None:
    """Check a valid episode in process."""

    async def ask(endpoint: str, header: Mapping[str, Any], frames: bytes) -> tuple[bytes, int]:
        deadline = asyncio.get_running_loop().time() + 5
        header_bytes, blobs = await service.handlers[endpoint](
            json.dumps(header).encode(), memoryview(frames), deadline
        )
        return header_bytes + b"".join(blobs), len(header_bytes)

    await check_valid_episode(ask, count, episode)


async def fuzz_sockets(service: RunningService, port: int, count: OutcomeCount, total: int) -> None:
    """Send mutated messages to a service: 90 % over HTTP, 10 % over gRPC."""
    valid_messages = make_messages(await asyncio.to_thread(fetch_state, service))
    indices = iter(range(total))

    async def worker(seed: int) -> None:
        mutator = RequestMutator(1 + seed)
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            calls = [(path, message.SerializeToString()) for path, message in grpc_calls(valid_messages)]
            for index in indices:
                if index % 10 == 0:
                    path, content = mutator.rng.choice(calls)
                    await fuzz_grpc(channel, path, content, mutator, count, index)
                else:
                    await fuzz_http(service, mutator.rng.choice(valid_messages), mutator, count, index)
                if index % CHECK_INTERVAL == 0:
                    await check_over_http(service, count, index)
                    logging.info("over sockets: %d of %d, %s", index, total, dict(count.outcomes))

    await asyncio.gather(*(worker(seed) for seed in range(16)))


async def fuzz_grpc(
    channel: aio.Channel, path: str, content: bytes, mutator: RequestMutator, count: OutcomeCount, index: int
) -> None:
    """Send a mutated message to a gRPC method."""
    mutated = mutator.mutate_bytes(content)
    try:
        await channel.unary_unary(path)(mutated, timeout=HANG_TIMEOUT_S)
        count.record("grpc: answered")
    except aio.AioRpcError as error:
        is_failure = error.code() in (StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.DEADLINE_EXCEEDED)
        count.record(f"grpc: {error.code().name.lower()}", f"grpc, {index}: {error}" if is_failure else "")


async def fuzz_http(
    service: RunningService, valid: RequestMessage, mutator: RequestMutator, count: OutcomeCount, index: int
) -> None:
    """Send an HTTP request with a mutated message or mutated headers."""
    mutated = mutator.mutate_message(valid)
    path = f"/v1/{valid.kind}" if valid.kind != "infer" else "/v2/models/reward/infer"
    head = http_head(path, mutated.header, mutated.body, "connection: close")
    request = head + mutated.header + mutated.body
    if index % 3 == 0:
        request = mutator.mutate_bytes(head) + valid.header + valid.body
    try:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*service.address)
            writer.write(request)
            if writer.can_write_eof():
                writer.write_eof()
            response = await reader.read()
            writer.transport.abort()
    except TimeoutError:
        count.record("hangs", f"http, {index}: hangs")
        return
    except OSError:
        response = b""
    status = response[9:12].decode() if response.startswith(b"HTTP/1.1 ") else "closed"
    count.record(
        f"http: {status}", f"http, {index}: {response[:300]!r}" if status.startswith("5") and status != "504" else ""
    )


async def check_over_http(service: RunningService, count: OutcomeCount, episode: int) -> None:
    """Check a valid episode over HTTP."""
    connection = WireConnection(*service.address)

    async def ask(endpoint: str, header: Mapping[str, Any], frames: bytes) -> tuple[bytes, int]:
        answer = await connection.request(f"/v1/{endpoint}", header, frames)
        return answer.body, int(answer.headers[HEADER_LENGTH_HEADER.lower()])

    await check_valid_episode(ask, count, episode)
    connection.close()


def fetch_state(service: RunningService) -> bytes:
    """Return the serialized state of two episodes of a service."""
    with RewardClient(service.url) as client:
        frames = {name: FRAMES[0, :, i] for i, name in enumerate(VIEW_NAMES)}
        state = client.reset([0, 1], [0, 0], [LIFT_INSTRUCTION, "open it"], frames, return_state=True).state
    assert state is not None
    return state


def report(
    in_process_count: OutcomeCount, socket_count: OutcomeCount, args: argparse.Namespace, elapsed_s: float
) -> str:
    """Return the section as Markdown."""
    num_failures = len(in_process_count.failures) + len(socket_count.failures)
    outcomes = [
        ", ".join(f"{k}: {v}" for k, v in sorted(count.outcomes.items())) for count in (in_process_count, socket_count)
    ]
    return "\n".join(
        [
            "## Mutated messages",
            "",
            f"`python benchmarks/serve_fuzz.py --messages {args.messages} --sockets {args.sockets}`: "
            "mutated valid requests of every kind. Crashes, hangs, statuses of 500 and more, and wrong predictions for "
            f"a valid episode (checked every {CHECK_INTERVAL} messages): **{num_failures}**. {elapsed_s:.0f} s.",
            "",
            f"- in process, {sum(in_process_count.outcomes.values())}: {outcomes[0]}",
            f"- over sockets, {sum(socket_count.outcomes.values())}: {outcomes[1]}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages in process")
    parser.add_argument("--sockets", type=int, default=100_000, help="messages over sockets")
    parser.add_argument("--page", type=Path, default=Path("docs/results/reliability.md"), help="page with the section")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    start, in_process_count, socket_count = time.monotonic(), OutcomeCount(), OutcomeCount()
    asyncio.run(fuzz_in_process(in_process_count, args.messages))
    port = free_port()
    limits = json.dumps({k: v for k, v in vars(FUZZ_LIMITS).items() if v != getattr(ServeLimits(), k)})
    with run_service([*HASH_SERVICE_COMMAND, "--grpc-port", str(port), "--limits", limits]) as service:
        asyncio.run(fuzz_sockets(service, port, socket_count, args.sockets))
    write_section(
        args.page,
        "serve fuzz",
        report(in_process_count, socket_count, args, time.monotonic() - start),
        title="Reliability",
    )
    if in_process_count.failures or socket_count.failures:
        raise SystemExit("\n".join([*in_process_count.failures, *socket_count.failures][:20]))


if __name__ == "__main__":
    main()
