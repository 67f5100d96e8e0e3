"""Episodes under way: which step each is at, what was answered last, and so which request is new, a retry or wrong.

A request may arrive twice: its sender saw a connection break and cannot know whether it had arrived. The same episode,
step and frames get the same answer, and are judged once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from embodied_rm.serve.config import Limits
from embodied_rm.serve.protocol import Advance, Begin, Call, Episodes, Key, Moment, Restore, Showing
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.slabs import Place, Row, Slab

Array = npt.NDArray[Any]
ALIVE = 60.0
"""Seconds between two looks for episodes that nobody advances."""


Columns = dict[str, Array]
"""What was judged of N frames, by name, as it is sent."""
UNKNOWN = -1.0
"""On the wire, in the place of a number that the model does not tell."""
KINDS = {"value": "<f4", "valid": "|b1", "stage": "<i8", "success": "<f4", "spread": "<f4", "ood": "<f4"}


def nothing_yet(rows: int) -> Columns:
    """Of the first frames of episodes."""
    first = {"valid": True, "ood": UNKNOWN}
    return {name: np.full(rows, first.get(name, 0), kind) for name, kind in KINDS.items()}


class Said(NamedTuple):
    """What was judged of one frame: a row of what was judged together."""

    columns: Columns
    row: int


@dataclass
class Session:
    """An episode under way."""

    at: Moment
    place: Place
    said: Said | None
    used: float


class UnderWay(NamedTuple):
    """An episode under way, as it is told to who looks on."""

    env: int
    at: Moment
    said: Said | None
    """None: it was taken up again, and nothing was judged since."""
    idle: float
    """Seconds since anybody asked about it."""


@dataclass
class Judging:
    """A moment that is being judged."""

    at: Moment
    done: asyncio.Future[None]
    """Done when it is settled, either way."""


@dataclass
class Sorted:
    """The rows of a request, by what is to be done for them."""

    fresh: list[int] = field(default_factory=list)
    """To be judged."""
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """An earlier request of the same content is being judged: when that is done, they are known."""


class Sessions:
    """All episodes under way. Lives in one thread."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._known: dict[Key, Session] = {}
        self._judging: dict[Key, Judging] = {}
        self._due: deque[Callable[[], None]] = deque()
        self._looked = clock()

    def __len__(self) -> int:
        return len(self._known)

    def runs(self) -> dict[str, list[UnderWay]]:
        """Run -> its episodes under way."""
        now, told = self._clock(), dict[str, list[UnderWay]]()
        for (run, env), session in self._known.items():
            told.setdefault(run, []).append(UnderWay(env, session.at, session.said, now - session.used))
        return told

    def soon(self, settle: Callable[[], None]) -> None:
        """Have something settled as soon as nobody waits for an answer, and before anything else is asked."""
        self._due.append(settle)
        asyncio.get_running_loop().call_soon(self._catch_up)

    def _catch_up(self) -> None:
        while self._due:
            self._due.popleft()()

    def sort(self, call: Showing) -> Sorted:
        """What is to be done for the rows of a request. Raises `RefusalError` where one of them is out of step."""
        self._catch_up()
        self.forget_idle()
        rows, lost = Sorted(), []
        for row, (key, at) in enumerate(zip(call.of.keys, call.moments, strict=True)):
            judging = self._judging.get(key)
            if judging is not None:
                if judging.at != at:
                    raise out_of_step(key, at, "an earlier request about this environment is not answered yet")
                rows.waiting.append(judging.done)
                continue
            session = self._known.get(key)
            if session is not None and session.at == at and session.said is not None:
                session.used = self._clock()
            elif isinstance(call, Begin):
                self._refuse_begin(key, at, session)
                rows.fresh.append(row)
            elif session is None or session.at.episode < at.episode:
                lost.append(key[1])
            else:
                self._refuse_step(key, at, session)
                rows.fresh.append(row)
        if lost:
            raise LostError(lost)
        self._refuse_many(call, rows)
        return rows

    def judge(self, call: Call, rows: Sequence[int]) -> asyncio.Future[None]:
        """Note that these rows are being judged; the future is to be done when they are settled."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keys, moments = call.of.keys, call.moments
        for row in rows:
            self._judging[keys[row]] = Judging(moments[row], done)
        return done

    def settle(
        self,
        call: Call,
        rows: Sequence[int],
        slab: Slab,
        start: int,
        columns: Columns | None,
    ) -> None:
        """What came out for these rows, which are those of `slab` from `start` on; None: they were taken up, and
        nobody knows what was said of them."""
        now, left = self._clock(), set[Slab]()
        keys, moments = call.of.keys, call.moments
        for number, row in enumerate(rows):
            key = keys[row]
            del self._judging[key]
            session = self._known.get(key)
            said = None if columns is None else Said(columns, number)
            if session is not None:
                left.add(session.place.move(slab, start + number))
                session.at, session.said, session.used = moments[row], said, now
            elif not isinstance(call, Advance):  # else it was ended meanwhile
                self._known[key] = Session(moments[row], Place(slab, start + number), said, now)
        for one in left:
            one.tidy()

    def drop(self, call: Call, rows: Sequence[int]) -> None:
        """Nothing came out for these rows: their episodes are where they were."""
        keys = call.of.keys
        for row in rows:
            del self._judging[keys[row]]

    def places(self, of: Episodes, rows: Sequence[int]) -> list[Row]:
        """Where the memory of these rows is now."""
        keys = of.keys
        places = [self._known[keys[row]].place for row in rows]
        return [(place.slab.memory, place.row) for place in places]

    def said(self, call: Showing) -> Columns:
        """What was said of a moment of each row. Raises `RefusalError` where that is no longer the last one."""
        told: list[Said] = []
        for key, at in zip(call.of.keys, call.moments, strict=True):
            session = self._known.get(key)
            if session is None or session.at != at or session.said is None:
                raise out_of_step(key, at, "it was not judged, or a later one was")
            told.append(session.said)
        columns = told[0].columns
        if all(one.columns is columns and one.row == row for row, one in enumerate(told)) and len(told) == len(
            columns["value"]
        ):
            return columns
        return {name: np.array([one.columns[name][one.row] for one in told], kind) for name, kind in KINDS.items()}

    def end(self, of: Episodes) -> int:
        """Forget these episodes and those before them; how many there were."""
        self._catch_up()
        known = [
            key
            for key, episode in zip(of.keys, of.episode, strict=True)
            if key in self._known and self._known[key].at.episode <= episode
        ]
        for key in known:
            self._known.pop(key).place.leave()
        return len(known)

    def refuse_restore(self, call: Restore) -> None:
        """Raises `RefusalError` unless these episodes may be taken up: none is being judged, or farther here."""
        self._catch_up()
        for key, at in zip(call.of.keys, call.moments, strict=True):
            session = self._known.get(key)
            if key in self._judging:
                raise out_of_step(key, at, "a request about this environment is not answered yet")
            if session is not None and session.at[:2] > at[:2]:
                raise out_of_step(key, at, f"it is at step {session.at.step} of episode {session.at.episode} here")
        self._refuse_room(sum(key not in self._known for key in call.of.keys))

    def forget_idle(self) -> None:
        """Forget what nobody has asked about for long."""
        now = self._clock()
        if now - self._looked < min(ALIVE, self._limits.idle_s):
            return
        self._looked = now
        for key, session in list(self._known.items()):
            if now - session.used >= self._limits.idle_s and key not in self._judging:
                self._known.pop(key).place.leave()

    def _refuse_begin(self, key: Key, at: Moment, session: Session | None) -> None:
        if session is not None and session.at.episode >= at.episode:
            raise out_of_step(key, at, f"episode {session.at.episode} of it has begun already")

    def _refuse_step(self, key: Key, at: Moment, session: Session) -> None:
        if session.at.episode > at.episode:
            raise out_of_step(key, at, f"episode {session.at.episode} of it has begun already")
        if session.at.step == at.step:
            raise out_of_step(key, at, "this step was judged already, of other frames")
        if session.at.step + 1 != at.step:
            raise out_of_step(key, at, f"the next step of it is {session.at.step + 1}")

    def _refuse_many(self, call: Showing, rows: Sorted) -> None:
        if isinstance(call, Begin):
            keys = call.of.keys
            self._refuse_room(sum(keys[row] not in self._known for row in rows.fresh))

    def _refuse_room(self, more: int) -> None:
        begun = sum(key not in self._known for key in self._judging)
        if len(self._known) + begun + more > self._limits.sessions:
            self._looked = -self._limits.idle_s
            raise RefusalError(
                Why.FULL, f"{self._limits.sessions} episodes are under way already: end some", retry_after=1.0
            )


class LostError(RefusalError):
    """Episodes that are unknown here: their client may send back what was remembered of them."""

    def __init__(self, env: Sequence[int]) -> None:
        super().__init__(
            Why.NO_SESSION,
            f"nothing is known of the episodes of {len(env)} environments, {env[0]} among them: begin or restore them",
        )
        self.env = tuple(env)


def out_of_step(key: Key, at: Moment, reason: str) -> RefusalError:
    """For a moment that cannot be judged now."""
    return RefusalError(Why.OUT_OF_STEP, f"environment {key[1]}, episode {at.episode}, step {at.step}: {reason}")
