"""Many clients of a service in one process, on bare connections, which know what they must be told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from known_models import first, following, share

from embodied_rm.serve.client.wire import BINARY, LENGTH, read_answer

VIEWS = ["front", "wrist"]
LIFT = "lift the red cube"


class BrokenError(Exception):
    """The connection ended before an answer was whole."""


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def head_of(path: str, text: bytes, blob: bytes, *more: str) -> bytes:
    """The HTTP head of a request of JSON and bytes; `more`: other lines of it."""
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", *more, f"content-type: {BINARY}"]
    lines += [f"{LENGTH}: {len(text)}", f"content-length: {len(text) + len(blob)}"]
    return "\r\n".join([*lines, "", ""]).encode()


@dataclass
class Connection:
    """One connection, opened when it is needed."""

    host: str
    port: int
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str, header: Mapping[str, Any], blob: bytes) -> Answer:
        """Send a request of the session API and read the answer. Raises `BrokenError` where there is none."""
        text = json.dumps(header).encode()
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(self.host, self.port)
            self._writer.write(head_of(path, text, blob) + text + blob)
            return await self._answer()
        except (OSError, asyncio.IncompleteReadError) as fault:
            self.close()
            raise BrokenError(str(fault)) from None
        except asyncio.CancelledError:
            self.close()
            raise

    async def _answer(self) -> Answer:
        assert self._reader is not None
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return Answer(int(lines[0].split()[1]), headers, body)

    def close(self) -> None:
        """End it, whatever is under way."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


@dataclass
class Film:
    """An episode that `Hashing` judges: what it is shown, and what must be said of it."""

    env: int
    rng: np.random.Generator
    episode: int = -1
    step: int = 0
    digest: int = 0
    frames: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))

    def show(self) -> np.ndarray:
        """The next frame, [V, 8, 8, 3]; the same again until it was judged."""
        if not len(self.frames):
            self.frames = self.rng.integers(0, 256, (2, 8, 8, 3), np.uint8)
        return self.frames

    def begun(self, episode: int) -> None:
        """The frame that is shown began an episode."""
        self.episode, self.step, self.digest = episode, 0, first(LIFT, self.frames)
        self.frames = self.frames[:0]

    def judged(self, value: float) -> bool:
        """The frame that is shown was judged; whether that was right."""
        self.digest, self.step = following(self.digest, self.frames), self.step + 1
        self.frames = self.frames[:0]
        return abs(float(share(np.array([self.digest]))[0]) - value) < 1e-6


def header_of(run: str, films: Sequence[Film], episode: Sequence[int], **more: Any) -> dict[str, Any]:
    """The JSON of a request about the next frame of these films."""
    return frames_header(run, [film.env for film in films], episode, 8, **more)


def frames_header(run: str, env: Sequence[int], episode: Sequence[int], side: int, **more: Any) -> dict[str, Any]:
    """The JSON of a request about a frame of each environment, of so many pixels a side."""
    shape = {"shape": [len(env), len(VIEWS), side, side, 3]}
    return {"run": run, "env": list(env), "episode": list(episode), "views": VIEWS, "frames": shape, **more}


def values_of(answer: Answer) -> list[float]:
    """The progress in an answer."""
    _, columns, _ = read_answer(answer.body, int(answer.headers[LENGTH.lower()]))
    return [float(value) for value in columns["value"]]
