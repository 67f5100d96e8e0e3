"""Messages that are nearly right, by the million: python benchmarks/serve_fuzz.py

Good requests of every kind are changed at random: bytes, numbers, names, lengths, parts of them. In process they go to
what reads them, and over sockets to a service, HTTP and gRPC. Whatever they are, they are answered or refused by a
status below 500, in time, and a good episode is judged as ever after it. Writes the section of docs/reliability.md.
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
from good_requests import FILM, Message, form, grpc_calls, messages, protobufs
from grpc import StatusCode, aio
from known_models import Hashing, first, following, served_by, share
from mutations import Mutations
from serving import KNOWN, Running, free_port, running
from wire_client import LIFT, VIEWS, Connection, head_of

from embodied_rm.cli.benchmarks import put_section
from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.serve.client.wire import LENGTH, read_answer
from embodied_rm.serve.config import Limits, ServeConfig
from embodied_rm.serve.grpc.films import inferred
from embodied_rm.serve.grpc.messages import INFER
from embodied_rm.serve.grpc.server import parsed
from embodied_rm.serve.npy_batch import evaluate
from embodied_rm.serve.open_inference import infer
from embodied_rm.serve.refusal import RefusalError
from embodied_rm.serve.service import RewardService

LIMITS = Limits(body_mb=0.25, rows=16, side=64, frames=8, header_kb=16, timeout_s=5, body_s=1, sessions=200_000)
HANG = 20.0
"""Seconds after which something that is not answered hangs."""
CHECK = 10_000
"""Messages between two good episodes."""
Ask = Callable[[str, Mapping[str, Any], bytes], Awaitable[tuple[bytes, int]]]
"""(What, its JSON, its bytes) -> the answer, and how many bytes of it are JSON."""


class Count:
    """What became of messages."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []

    def note(self, outcome: str, fault: str = "") -> None:
        """One message."""
        self.outcomes[outcome] += 1
        if fault:
            self.faults.append(fault)


async def in_process(count: Count, total: int) -> None:
    """The messages to what reads them."""
    served = served_by(Hashing())
    service = RewardService(served, ServeConfig(limits=LIMITS))
    async with service:
        loop = asyncio.get_running_loop()
        state = await remembered(service)
        goods, (content_type, body) = messages(state), form()
        grpc = [(kind, message.SerializeToString()) for kind, message in protobufs(goods)]
        change = Mutations(0)

        async def one(number: int) -> None:
            expires = loop.time() + 5
            match number % 8:
                case 6:
                    kind, content = change.random.choice(grpc)
                    message = parsed(kind, change.flipped(content))
                    if kind is INFER["ModelInferRequest"]:
                        await inferred(service, message, expires)
                    else:
                        await service.asked["begin"](message.header, memoryview(message.body), expires)
                case 7:
                    await evaluate(service, content_type, change.flipped(body), "front", expires)
                case _:
                    bad = change.message(change.random.choice(goods))
                    if bad.kind == "infer":
                        await infer(service, bad.text, memoryview(bad.blob), expires)
                    else:
                        await service.asked[bad.kind](bad.text, memoryview(bad.blob), expires)

        for number in range(total):
            await judged(count, one(number), f"in process, {number}")
            if number % CHECK == 0:
                await golden_here(service, count, number)
                logging.info("in process: %d of %d, %s", number, total, dict(count.outcomes))
    served.thread.shutdown()


async def judged(count: Count, attempt: Awaitable[Any], where: str) -> None:
    """Wait for an attempt, and note what became of it."""
    try:
        await asyncio.wait_for(attempt, HANG)
        count.note("answered")
    except RefusalError as refusal:
        count.note(str(refusal.why.status), f"{where}: {refusal}" if refusal.why.status >= 500 else "")
    except TimeoutError:
        count.note("hangs", f"{where}: hangs")
    except Exception as fault:
        count.note("breaks", f"{where}: {type(fault).__name__}: {fault}")
        logging.exception("a message broke what reads it")
        if len(count.faults) > CHECK:
            raise


async def remembered(service: RewardService) -> bytes:
    """The memory of two episodes."""
    whose = {"run": "m", "env": [0, 1], "episode": [0, 0], "views": VIEWS, "frames": {"shape": [2, 2, 8, 8, 3]}}
    header = {**whose, "instruction": [LIFT, "open it"], "state": True}
    expires = asyncio.get_running_loop().time() + 5
    _, blobs = await service.asked["begin"](json.dumps(header).encode(), memoryview(FILM[0].tobytes()), expires)
    return bytes(blobs[-1])


def expected() -> float:
    """What a good episode is told after its second frame."""
    digest = following(first(LIFT, FILM[0, 0]), FILM[1, 0])
    return float(share(np.array([digest]))[0])


async def golden(ask: Ask, count: Count, number: int) -> None:
    """A good episode."""
    whose = {"run": "golden", "env": [0], "episode": [number], "views": VIEWS, "frames": {"shape": [1, 2, 8, 8, 3]}}
    for asked, more, frames in (("begin", {"instruction": [LIFT]}, FILM[0, 0]), ("advance", {"step": [1]}, FILM[1, 0])):
        answer, length = await ask(asked, {**whose, **more}, frames.tobytes())
    value = float(read_answer(answer, length)[1]["value"][0])
    if value != np.float32(expected()):
        count.note("wrong", f"after {number} messages a good episode is told {value}")


async def golden_here(service: RewardService, count: Count, number: int) -> None:
    """A good episode, in process."""

    async def ask(asked: str, header: Mapping[str, Any], frames: bytes) -> tuple[bytes, int]:
        expires = asyncio.get_running_loop().time() + 5
        told, blobs = await service.asked[asked](json.dumps(header).encode(), memoryview(frames), expires)
        return told + b"".join(blobs), len(told)

    await golden(ask, count, number)


async def over_sockets(service: Running, port: int, count: Count, total: int) -> None:
    """The messages to a service, most by HTTP, and a tenth by gRPC."""
    goods = messages(await asyncio.to_thread(state_of, service))
    numbers = iter(range(total))

    async def worker(seed: int) -> None:
        change = Mutations(1 + seed)
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            calls = [(path, message.SerializeToString()) for path, message in grpc_calls(goods)]
            for number in numbers:
                if number % 10 == 0:
                    await by_grpc(channel, *change.random.choice(calls), change, count, number)
                else:
                    await by_http(service, change.random.choice(goods), change, count, number)
                if number % CHECK == 0:
                    await golden_there(service, count, number)
                    logging.info("over sockets: %d of %d, %s", number, total, dict(count.outcomes))

    await asyncio.gather(*(worker(seed) for seed in range(16)))


async def by_grpc(
    channel: aio.Channel, path: str, content: bytes, change: Mutations, count: Count, number: int
) -> None:
    """A changed message to a method."""
    bad = change.flipped(content)
    try:
        await channel.unary_unary(path)(bad, timeout=HANG)
        count.note("grpc: answered")
    except aio.AioRpcError as fault:
        broken = fault.code() in (StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.DEADLINE_EXCEEDED)
        count.note(f"grpc: {fault.code().name.lower()}", f"grpc, {number}: {fault}" if broken else "")


async def by_http(service: Running, good: Message, change: Mutations, count: Count, number: int) -> None:
    """A changed request: the message, or the bytes of all of it."""
    bad, path = change.message(good), f"/v1/{good.kind}" if good.kind != "infer" else "/v2/models/reward/infer"
    head = head_of(path, bad.text, bad.blob, "connection: close")
    whole = head + bad.text + bad.blob
    if number % 3 == 0:
        whole = change.flipped(head) + good.text + good.blob
    try:
        async with asyncio.timeout(HANG):
            reader, writer = await asyncio.open_connection(*service.address)
            writer.write(whole)
            if writer.can_write_eof():
                writer.write_eof()
            told = await reader.read()
            writer.transport.abort()
    except TimeoutError:
        count.note("hangs", f"http, {number}: hangs")
        return
    except OSError:
        told = b""
    status = told[9:12].decode() if told.startswith(b"HTTP/1.1 ") else "closed"
    count.note(
        f"http: {status}", f"http, {number}: {told[:300]!r}" if status.startswith("5") and status != "504" else ""
    )


async def golden_there(service: Running, count: Count, number: int) -> None:
    """A good episode, over HTTP."""
    connection = Connection(*service.address)

    async def ask(asked: str, header: Mapping[str, Any], frames: bytes) -> tuple[bytes, int]:
        answer = await connection.ask(f"/v1/{asked}", header, frames)
        return answer.body, int(answer.headers[LENGTH.lower()])

    await golden(ask, count, number)
    connection.close()


def state_of(service: Running) -> bytes:
    """The memory of two episodes of a service."""
    with RewardClient(service.url) as client:
        frames = {name: FILM[0, :, i] for i, name in enumerate(VIEWS)}
        state = client.begin([0, 1], [0, 0], [LIFT, "open it"], frames, state=True).state
    assert state is not None
    return state


def report(here: Count, there: Count, args: argparse.Namespace, seconds: float) -> str:
    """The section."""
    faults = len(here.faults) + len(there.faults)
    told = [", ".join(f"{k}: {v}" for k, v in sorted(count.outcomes.items())) for count in (here, there)]
    return "\n".join(
        [
            "## Mutated messages",
            "",
            f"`python benchmarks/serve_fuzz.py --messages {args.messages} --sockets {args.sockets}`: good requests of "
            "every kind, changed at random. Crashes, hangs, statuses of 500 and more that the input caused, and good "
            f"episodes that were told something else afterwards (one every {CHECK}): **{faults}**. {seconds:.0f} s.",
            "",
            f"- in process, {sum(here.outcomes.values())}: {told[0]}",
            f"- over sockets, {sum(there.outcomes.values())}: {told[1]}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in process")
    parser.add_argument("--sockets", type=int, default=100_000, help="over sockets")
    parser.add_argument("--page", type=Path, default=Path("docs/reliability.md"), help="whose section is written")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    began, here, there = time.monotonic(), Count(), Count()
    asyncio.run(in_process(here, args.messages))
    port = free_port()
    limits = json.dumps({k: v for k, v in vars(LIMITS).items() if v != getattr(Limits(), k)})
    with running([*KNOWN, "--grpc-port", str(port), "--limits", limits]) as service:
        asyncio.run(over_sockets(service, port, there, args.sockets))
    put_section(args.page, "serve fuzz", report(here, there, args, time.monotonic() - began), title="Reliability")
    if here.faults or there.faults:
        raise SystemExit("\n".join([*here.faults, *there.faults][:20]))


if __name__ == "__main__":
    main()
