"""Messages that are nearly right, by the million: python benchmarks/serve_fuzz.py

Good requests of every kind are changed at random: bytes, numbers, names, lengths, parts of them. In process they go to
what reads them, and over sockets to a service, HTTP and gRPC. Whatever they are, they are answered or refused by a
status below 500, in time, and a good episode is judged as ever after it. Writes the section of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from grpc import StatusCode, aio
from known_models import Hashing, first, following, served_by, share
from PIL import Image
from serving import KNOWN, Running, free_port, running
from wire_client import LIFT, VIEWS

from embodied_rm.cli.benchmarks import put_section
from embodied_rm.serve.client.wire import LENGTH, read_answer
from embodied_rm.serve.config import Limits, ServeConfig
from embodied_rm.serve.grpc.films import inferred
from embodied_rm.serve.grpc.messages import INFER, REWARDS
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
FILM = np.random.default_rng(0).integers(0, 256, (3, 2, 2, 8, 8, 3), np.uint8)
"""[T, N, V, H, W, 3]."""
ODD: list[Any] = [
    0,
    -1,
    1,
    2,
    255,
    256,
    2**31,
    2**32,
    2**53,
    2**63,
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    True,
    None,
    "",
    "0",
    [],
    {},
]
ODD += ["\u0000", "../", "x" * 5000, [[]], [None], {"a": {}}, "\U0001f916", "a; then b", "; then ", "NaN"]


@dataclass(frozen=True)
class Message:
    """A good request."""

    kind: str
    text: bytes
    blob: bytes


def messages(state: bytes) -> list[Message]:
    """One of every kind; `state`: the memory of two episodes."""
    whose: dict[str, Any] = {"run": "r", "env": [0, 1], "episode": [0, 0]}
    seen: dict[str, Any] = {"views": VIEWS, "frames": {"shape": [2, 2, 8, 8, 3]}}
    files = [encoded(frame, kind) for frame, kind in zip(FILM[0].reshape(4, 8, 8, 3), ["PNG", "JPEG"] * 2, strict=True)]
    shown: dict[str, Any] = {"views": VIEWS, "frames": {"shape": [2, 2], "lengths": [len(file) for file in files]}}
    restore = {**whose, "step": [1, 1], "row": [0, 1], "rows": 2, "state": len(state)}
    film = np.moveaxis(FILM, 0, 1)
    tensors: list[dict[str, Any]] = [
        {
            "name": "frames",
            "datatype": "UINT8",
            "shape": list(film.shape),
            "parameters": {"binary_data_size": film.size},
        },
        {"name": "instruction", "datatype": "BYTES", "shape": [2], "data": [LIFT, "open it"]},
        {"name": "views", "datatype": "BYTES", "shape": [2], "data": VIEWS},
    ]
    small = [{**tensors[0], "shape": [1, 1, 1, 1, 1, 3], "parameters": {}, "data": [1, 2, 3]}]
    small += [{**tensors[1], "shape": [1], "data": [LIFT]}, {**tensors[2], "shape": [1], "data": ["front"]}]
    pixels = FILM[0].tobytes()
    told: list[tuple[str, Any, bytes]] = [
        ("begin", {**whose, **seen, "instruction": [LIFT, "open; then close"]}, pixels),
        ("begin", {**whose, **shown, "instruction": [LIFT, "open it"], "state": True}, b"".join(files)),
        ("advance", {**whose, **seen, "step": [1, 1], "state": True}, pixels),
        ("advance", {**whose, **shown, "step": [1, 1]}, b"".join(files)),
        ("end", whose, b""),
        ("restore", restore, state),
        ("infer", {"id": "1", "inputs": tensors, "outputs": [{"name": "value"}]}, film.tobytes()),
        ("infer", {"inputs": small, "parameters": {"binary_data_output": True}}, b""),
    ]
    return [Message(kind, json.dumps(header).encode(), blob) for kind, header, blob in told]


def encoded(frame: np.ndarray, kind: str) -> bytes:
    """A picture file."""
    file = io.BytesIO()
    Image.fromarray(frame).save(file, kind)
    return file.getvalue()


def form() -> tuple[str, bytes]:
    """A form as Robometer's clients send it."""
    file = io.BytesIO()
    np.save(file, FILM[:, 0, 0])
    sample = {"sample_type": "progress", "trajectory": {"frames": {"__numpy_file__": "f"}, "task": LIFT}}
    parts = [("f", file.getvalue()), ("sample_0", json.dumps(sample).encode())]
    body = b"".join(
        b'--xyz\r\ncontent-disposition: form-data; name="' + name.encode() + b'"\r\n\r\n' + content + b"\r\n"
        for name, content in parts
    )
    return "multipart/form-data; boundary=xyz", body + b"--xyz--\r\n"


class Mutations:
    """What is done to good messages."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def flipped(self, content: bytes) -> bytes:
        """Some bytes flipped, cut, doubled, moved, or put in."""
        chosen, data = self.random, bytearray(content)
        for _ in range(chosen.choice([1, 1, 1, 2, 4, 16])):
            at = chosen.randrange(len(data) + 1)
            match chosen.randrange(6):
                case 0 if data:
                    data[min(at, len(data) - 1)] ^= 1 << chosen.randrange(8)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = chosen.randbytes(chosen.choice([1, 2, 8, 64]))
                case 3:
                    del data[at : at + chosen.choice([1, 2, 8, 64])]
                case 4:
                    data[at:at] = data[at : at + 64]
                case _:
                    data[at : at + 8] = chosen.choice(
                        [b"\xff" * 8, bytes(8), b"\x80\x04\x95\x00", b"\r\n\r\n", b'"}],{']
                    )
        return bytes(data)

    def json(self, text: bytes) -> bytes:
        """Somewhere in it another value, another name, or one more or less."""
        value = json.loads(text)
        for _ in range(self.random.choice([1, 1, 2])):
            self._change(value)
        return json.dumps(value).encode()

    def _change(self, value: Any) -> None:
        while True:
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            if not keys:
                value.append(0) if isinstance(value, list) else value.update(a=1)
                return
            key = self.random.choice(keys)
            if isinstance(value[key], dict | list) and self.random.random() < 0.7:
                value = value[key]
                continue
            match self.random.randrange(4):
                case 0:
                    del value[key]
                case 1 if isinstance(value, list):
                    value.insert(key, deepcopy(self.random.choice(ODD)))
                case 1:
                    value[self.random.choice(["path", "url", "__class__", "x"])] = deepcopy(value[key])
                case 2 if isinstance(value[key], int):
                    value[key] += self.random.choice([-1, 1, 2, 1 << 16])
                case _:
                    value[key] = deepcopy(self.random.choice(ODD))
            return

    def message(self, good: Message) -> Message:
        """A good message, changed."""
        text, blob = good.text, good.blob
        match self.random.randrange(4):
            case 0:
                text = self.flipped(text)
            case 1:
                blob = self.flipped(blob)
            case _:
                text = self.json(text)
        return Message(good.kind, text, blob)


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


def protobufs(goods: list[Message]) -> list[tuple[Any, Any]]:
    """The same in messages of gRPC."""
    tensor = INFER["ModelInferRequest.InferInputTensor"]
    film = np.moveaxis(FILM, 0, 1)
    inputs = [tensor(name="frames", datatype="UINT8", shape=film.shape)]
    for name, texts in (("instruction", [LIFT, "open it"]), ("views", VIEWS)):
        inputs.append(tensor(name=name, datatype="BYTES", shape=[2]))
        inputs[-1].contents.bytes_contents.extend(text.encode() for text in texts)
    inputs[0].contents.uint_contents.extend(film.ravel().tolist())
    raw = [tensor(name=one.name, datatype=one.datatype, shape=one.shape) for one in inputs]
    contents = [
        film.tobytes(),
        *(b"".join(len(t).to_bytes(4, "little") + t.encode() for t in s) for s in ([LIFT, "x"], VIEWS)),
    ]
    infer_kind, begin = INFER["ModelInferRequest"], goods[0]
    return [
        (infer_kind, infer_kind(model_name="reward", inputs=inputs)),
        (infer_kind, infer_kind(model_name="reward", inputs=raw, raw_input_contents=contents)),
        (REWARDS["Request"], REWARDS["Request"](header=begin.text, body=begin.blob)),
    ]


def expected() -> float:
    """What a good episode is told after its second frame."""
    digest = following(first(LIFT, FILM[0, 0]), FILM[1, 0])
    return float(share(np.array([digest]))[0])


async def golden(ask: Callable[[str, bytes, bytes], Awaitable[tuple[bytes, int]]], count: Count, number: int) -> None:
    """A good episode; `ask`: (what, JSON, bytes) -> answer, and bytes of its JSON."""
    whose = {"run": "golden", "env": [0], "episode": [number], "views": VIEWS, "frames": {"shape": [1, 2, 8, 8, 3]}}
    for asked, more, frames in (("begin", {"instruction": [LIFT]}, FILM[0, 0]), ("advance", {"step": [1]}, FILM[1, 0])):
        answer, length = await ask(asked, json.dumps({**whose, **more}).encode(), frames.tobytes())
    value = float(read_answer(answer, length)[1]["value"][0])
    if value != np.float32(expected()):
        count.note("wrong", f"after {number} messages a good episode is told {value}")


async def golden_here(service: RewardService, count: Count, number: int) -> None:
    """A good episode, in process."""

    async def ask(asked: str, text: bytes, blob: bytes) -> tuple[bytes, int]:
        expires = asyncio.get_running_loop().time() + 5
        told, blobs = await service.asked[asked](text, memoryview(blob), expires)
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


def grpc_calls(goods: list[Message]) -> list[tuple[str, Any]]:
    """Path and message of each call."""
    paths = {"ModelInferRequest": "/inference.GRPCInferenceService/ModelInfer", "Request": "/embodied_rm.Rewards/Begin"}
    return [(paths[kind.DESCRIPTOR.name], message) for kind, message in protobufs(goods)]


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
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/octet-stream\r\n"
    head += f"{LENGTH}: {len(bad.text)}\r\ncontent-length: {len(bad.text) + len(bad.blob)}\r\n\r\n"
    whole = head.encode() + bad.text + bad.blob
    if number % 3 == 0:
        whole = change.flipped(head.encode()) + good.text + good.blob
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

    async def ask(asked: str, text: bytes, blob: bytes) -> tuple[bytes, int]:
        reader, writer = await asyncio.open_connection(*service.address)
        told = [f"POST /v1/{asked} HTTP/1.1", "host: 127.0.0.1", "connection: close"]
        told += ["content-type: application/octet-stream", f"{LENGTH}: {len(text)}"]
        head = "\r\n".join([*told, f"content-length: {len(text) + len(blob)}", "", ""])
        writer.write(head.encode() + text + blob)
        top, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        length = next(line for line in top.decode().lower().split("\r\n") if line.startswith(LENGTH.lower()))
        return body, int(length.partition(":")[2])

    await golden(ask, count, number)


def state_of(service: Running) -> bytes:
    """The memory of two episodes of a service."""
    from embodied_rm.serve.client.reward_client import RewardClient

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
