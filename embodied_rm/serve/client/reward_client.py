"""Speaks to a reward service. What it returns was judged; where it cannot be, it waits, and then raises."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import httpx
import numpy as np

from embodied_rm.serve.client.errors import LostError, OutageError, OutOfStepError, ServiceError
from embodied_rm.serve.client.judgement import Frames, Judgement
from embodied_rm.serve.client.wire import BINARY, LENGTH, LOOPBACK, TIMEOUT, Bytes, Message, read_answer, request_of

PIECE = 1 << 22
"""Bytes that are sent at once."""
AGAIN = (408, 429, 502, 503, 504)
"""Statuses after which a request is sent again: the service is full, restarting or slow."""
BROKEN = 500
"""Another such, unless the service itself says so: where one of several breaks, who stands before them answers that."""
SESSION = "X-Session-Id"
"""Header by which who stands before several services sends all of a run to one of them, as Ray Serve does."""
PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds before the first retry; each pause is twice the one before, and less by chance."""


class RewardClient:
    """A connection to a reward service, for one run.

    A request that may have been lost is sent again, with the same run, environment, episode and step: the service
    answers it once, and the same. While the service cannot be reached, or takes no requests, a call blocks, up to
    `patience` seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        key: Optional[str] = None,
        run: Optional[str] = None,
        patience: float = 60.0,
        timeout: float = 30.0,
    ) -> None:
        """`key`: the service's, if it has one; `run`: a name that no other client has, by default made by chance;
        `timeout`: seconds that one attempt may take. Raises `ValueError` for a key that would be sent in the clear."""
        where = httpx.URL(url)
        if key is not None and where.scheme != "https" and where.host not in LOOPBACK:
            raise ValueError(f"a key is not sent in the clear: {url} needs https, or a tunnel to this machine")
        self.run = run or secrets.token_hex(16)
        self.retried = 0
        """Attempts after the first one, of all requests."""
        self._patience, self._timeout = patience, timeout
        headers = {SESSION: self.run} | ({} if key is None else {"Authorization": f"Bearer {key}"})
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout, trust_env=False)
        self._random = random.Random()

    def __enter__(self) -> RewardClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Episodes that were not ended are forgotten by the service after a while."""
        self._http.close()

    def about(self) -> dict[str, Any]:
        """The model that is served: its name, version, views, and whether it tells success."""
        server = json.loads(self._sent("GET", "/v1/about").content)
        return dict(server)

    def begin(
        self,
        env: Sequence[int],
        episode: Sequence[int],
        instructions: Sequence[str],
        frames: Frames,
        *,
        state: bool = False,
    ) -> Judgement:
        """Open an episode in each of N environments, at its first frame; episodes of one are numbered upwards.

        `state`: whether what the service remembers is sent along, so that it can be sent back with `restore`.
        """
        header = {"env": list(env), "episode": list(episode), "instruction": list(instructions), "state": state}
        return self._judged("begin", header, frames)

    def advance(
        self,
        env: Sequence[int],
        episode: Sequence[int],
        step: Sequence[int],
        frames: Frames,
        *,
        state: bool = False,
    ) -> Judgement:
        """Judge one more frame of each, the `step`-th after the first.

        Raises `LostError` where the service knows nothing of an episode, `OutOfStepError` where it is at another step.
        """
        header = {"env": list(env), "episode": list(episode), "step": list(step), "state": state}
        return self._judged("advance", header, frames)

    def end(self, env: Sequence[int], episode: Sequence[int]) -> None:
        """Have episodes forgotten."""
        self._asked("end", request_of({"run": self.run, "env": list(env), "episode": list(episode)}, []))

    def restore(
        self,
        env: Sequence[int],
        episode: Sequence[int],
        step: Sequence[int],
        *,
        state: bytes,
        rows: int,
        row: Sequence[int],
    ) -> None:
        """Send back what the service remembered of `rows` episodes: of these, number `row` is each environment's."""
        header = {"run": self.run, "env": list(env), "episode": list(episode), "step": list(step)}
        self._asked("restore", request_of({**header, "rows": rows, "row": list(row), "state": len(state)}, [state]))

    def _judged(self, asked: str, header: dict[str, Any], frames: Frames) -> Judgement:
        shape, blobs = pixels_of(frames)
        told = {"run": self.run, **header, "views": list(frames), "frames": {"shape": shape, "by_view": True}}
        response = self._asked(asked, request_of(told, blobs))
        told, columns, tail = read_answer(response.content, int(response.headers[LENGTH]))
        for name in ("success", "ood"):
            columns[name] = np.where(columns[name] < 0, np.float32(np.nan), columns[name])
        return Judgement(**columns, state=bytes(tail) if told["state"] else None)

    def _asked(self, asked: str, message: Message) -> httpx.Response:
        text, blobs = message
        headers = {"Content-Type": BINARY, LENGTH: str(len(text)), TIMEOUT: str(int(self._timeout * 1000))}
        headers["Content-Length"] = str(len(text) + sum(map(len, blobs)))
        return self._sent("POST", f"/v1/{asked}", [text, *blobs], headers)

    def _sent(
        self, method: str, path: str, content: Sequence[Bytes] = (), headers: Optional[dict[str, str]] = None
    ) -> httpx.Response:
        """The answer, however often it takes."""
        until, pause = time.monotonic() + self._patience, PAUSE
        while True:
            try:
                response = self._http.request(method, path, content=pieces(content), headers=headers)
            except httpx.TransportError as fault:
                reason, wait = f"cannot be reached ({fault})", 0.0
            else:
                if response.status_code < 300:
                    return response
                if not worth_again(response):
                    raise refusal_of(response)
                reason = f"takes no requests ({response.status_code}: {told_in(response).get('error')})"
                wait = waited_for(response)
            wait = max(wait, pause * self._random.uniform(0.5, 1.0))
            if time.monotonic() + wait > until:
                raise OutageError(f"the reward service {reason}, and that for {self._patience:g} s")
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)
            self.retried += 1


def pixels_of(frames: Frames) -> tuple[list[int], list[Bytes]]:
    """The shape [N, V, H, W, 3] of all frames, and each view's pixels. Raises `ValueError` for what is none."""
    arrays = [np.ascontiguousarray(view) for view in frames.values()]
    shapes = {view.shape for view in arrays}
    if len(shapes) != 1 or any(view.dtype != np.uint8 or view.ndim != 4 for view in arrays):
        each = ", ".join(f"{name}: {view.dtype} {list(view.shape)}" for name, view in zip(frames, arrays))
        raise ValueError(f"frames must be uint8 [N, H, W, 3], of one shape in all views, got {each or 'none'}")
    rows, *size = arrays[0].shape
    return [rows, len(arrays), *size], [view.data.cast("B") for view in arrays]


def pieces(content: Sequence[Bytes]) -> Iterator[bytes]:
    """The bytes one after the other, in pieces: the service reads one while the next is copied."""
    for blob in content:
        view = memoryview(blob)
        for start in range(0, len(view), PIECE):
            yield bytes(view[start : start + PIECE])


def worth_again(response: httpx.Response) -> bool:
    """Whether the same request may be answered later."""
    status = response.status_code
    return status in AGAIN or (status == BROKEN and not told_in(response))


def refusal_of(response: httpx.Response) -> ServiceError:
    """What the service says of a request that it does not take."""
    told, status = told_in(response), response.status_code
    message = f"{told.get('error') or response.reason_phrase} ({status})"
    if status == 410:
        return LostError(message, told.get("env", []))
    if status == 409:
        return OutOfStepError(message, status)
    return ServiceError(message, status)


def told_in(response: httpx.Response) -> dict[str, Any]:
    """The JSON of a refusal; empty where somebody else refuses, between us and the service."""
    try:
        told = response.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def waited_for(response: httpx.Response) -> float:
    """Seconds that a service asks to wait."""
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isdigit() else 0.0
