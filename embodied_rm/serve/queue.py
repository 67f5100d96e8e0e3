"""What waits to be judged: bounded, and in fair turns, so that no client can keep the others waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from embodied_rm.serve.config import Limits
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.slabs import Row, Slab
from embodied_rm.types import Progress, Views

BEGIN, ADVANCE, RESTORE = "begin", "advance", "restore"


@dataclass(frozen=True)
class Outcome:
    """What came out of a piece of work."""

    slab: Slab
    """The memory of the whole batch."""
    start: int
    """The first of its rows in that."""
    progress: Progress | None
    """None of episodes that begin or are taken up."""
    stored: bytes = b""
    """The memory of its rows, where that was asked for."""


class Remembered(NamedTuple):
    """A memory that was sent back."""

    content: memoryview
    rows: int
    """Episodes that it is of."""
    wanted: tuple[int, ...]
    """Those of them that are taken up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """Rows of one request that are judged together."""

    client: str
    kind: str
    rows: int
    views: Views | None = None
    instructions: Sequence[str] = ()
    places: Sequence[Row] = ()
    """Where their memory is."""
    state: Remembered | None = None
    """The memory that is to be taken up."""
    stores: bool = False
    """Whether the memory is asked for."""
    expires: float
    """When its answer is of no use any more, by the loop's clock."""
    outcome: asyncio.Future[Outcome]

    @property
    def alike(self) -> tuple[object, ...]:
        """Works for which this is equal can be judged side by side."""
        if self.views is None:
            return (self.kind, id(self))
        return (self.kind, self.views.names, self.views.frames.shape[2:])


class FairQueue:
    """Works of many clients. Each has its own line, and they take turns."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines: dict[str, deque[Work]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> int:
        """Of all that waits."""
        return sum(work.rows for line in self._lines.values() for work in line)

    def refuse_more(self, client: str | None = None) -> None:
        """Raises `RefusalError` if nothing more of this client, or of any, may wait."""
        if self._count >= self._limits.queue:
            raise RefusalError(Why.FULL, f"{self._count} requests are waiting already", retry_after=1.0)
        most = max(1, int(self._limits.queue * self._limits.share))
        if client is not None and len(self._lines.get(client, ())) >= most:
            raise RefusalError(Why.FULL, f"{most} requests of this run are waiting already", retry_after=1.0)

    def put(self, work: Work) -> None:
        """Have it wait. Raises `RefusalError` where no more may."""
        self.refuse_more(work.client)
        self._lines.setdefault(work.client, deque()).append(work)
        self._count += 1

    def take(self, most: int, now: float) -> list[Work]:
        """Works that can be judged side by side, `most` rows of them or one that has more; what has expired is answered
        so, and left out. Whose turn it was waits longest for the next."""
        taken: list[Work] = []
        rows = 0
        for client in self._turns(now):
            line = self._lines[client]
            if not line:
                continue
            fits = not taken or (line[0].alike == taken[0].alike and rows + line[0].rows <= most)
            if not fits:
                continue
            taken.append(line.popleft())
            rows += taken[-1].rows
            self._count -= 1
        moved = dict.fromkeys(reversed(dict.fromkeys(work.client for work in reversed(taken))))  # the last taken, last
        first = {client: line for client, line in self._lines.items() if line and client not in moved}
        self._lines = first | {client: self._lines[client] for client in moved if self._lines[client]}
        return taken

    def _turns(self, now: float) -> Iterator[str]:
        """The clients, round after round, as long as a round takes anything."""
        before = -1
        while before != self._count:
            before = self._count
            for client in list(self._lines):
                self._drop_expired(client, now)
                yield client

    def _drop_expired(self, client: str, now: float) -> None:
        line = self._lines[client]
        while line and line[0].expires <= now:
            work = line.popleft()
            self._count -= 1
            if not work.outcome.done():
                work.outcome.set_exception(RefusalError(Why.TOO_LATE, "its time was over before it was judged"))
