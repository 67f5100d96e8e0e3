"""Asynchronous low-level clients of the service that know the expected responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from known_models import digest_to_progress, initial_digest, next_digest

from embodied_rm.client.wire import BINARY_CONTENT_TYPE, HEADER_LENGTH_HEADER, decode_response

VIEW_NAMES = ["front", "wrist"]
LIFT_INSTRUCTION = "lift the red cube"


class ConnectionBrokenError(Exception):
    """The connection ended before a response was complete."""


@dataclass
class WireResponse:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def http_head(path: str, header: bytes, body: bytes, *extra_lines: str) -> bytes:
    """Return the HTTP head of a request with a JSON header and a binary body, plus `extra_lines`."""
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", *extra_lines, f"content-type: {BINARY_CONTENT_TYPE}"]
    lines += [f"{HEADER_LENGTH_HEADER}: {len(header)}", f"content-length: {len(header) + len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode()


@dataclass
class WireConnection:
    """One connection, opened at the first request."""

    host: str
    port: int
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def request(self, path: str, header: Mapping[str, Any], body: bytes) -> WireResponse:
        """Send a request and return the response. Raises `ConnectionBrokenError` without a complete response."""
        header_bytes = json.dumps(header).encode()
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(self.host, self.port)
            self._writer.write(http_head(path, header_bytes, body) + header_bytes + body)
            return await self._read_response()
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise ConnectionBrokenError(str(error)) from None
        except asyncio.CancelledError:
            self.close()
            raise

    async def _read_response(self) -> WireResponse:
        assert self._reader is not None
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return WireResponse(int(lines[0].split()[1]), headers, body)

    def close(self) -> None:
        """Abort the connection."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


@dataclass
class HashedEpisode:
    """An episode for the hash model: its frames and its expected progress."""

    env: int
    rng: np.random.Generator
    episode: int = -1
    step: int = 0
    digest: int = 0
    frames: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))

    def next_frame(self) -> np.ndarray:
        """Return the next frame, [V, 8, 8, 3]; the same one until it was scored."""
        if not len(self.frames):
            self.frames = self.rng.integers(0, 256, (2, 8, 8, 3), np.uint8)
        return self.frames

    def record_reset(self, episode: int) -> None:
        """Record that the current frame started an episode."""
        self.episode, self.step, self.digest = episode, 0, initial_digest(LIFT_INSTRUCTION, self.frames)
        self.frames = self.frames[:0]

    def check_progress(self, value: float) -> bool:
        """Record that the current frame was scored; return whether the progress is as expected."""
        self.digest, self.step = next_digest(self.digest, self.frames), self.step + 1
        self.frames = self.frames[:0]
        return abs(float(digest_to_progress(np.array([self.digest]))[0]) - value) < 1e-6


def request_header(
    run: str, episodes: Sequence[HashedEpisode], episode: Sequence[int], **fields: Any
) -> dict[str, Any]:
    """Return the JSON header of a request with the next frames of these episodes."""
    return frames_header(run, [hashed_episode.env for hashed_episode in episodes], episode, 8, **fields)


def frames_header(
    run: str, env: Sequence[int], episode: Sequence[int], image_size: int, **fields: Any
) -> dict[str, Any]:
    """Return the JSON header of a request with one frame per environment, `image_size` pixels wide and high."""
    shape = {"shape": [len(env), len(VIEW_NAMES), image_size, image_size, 3]}
    return {
        "client_id": run,
        "env_ids": list(env),
        "episode_ids": list(episode),
        "views": VIEW_NAMES,
        "frames": shape,
        **fields,
    }


def progress_values(answer: WireResponse) -> list[float]:
    """Return the progress values of a response."""
    _, columns, _ = decode_response(answer.body, int(answer.headers[HEADER_LENGTH_HEADER.lower()]))
    return [float(value) for value in columns["progress"]]
