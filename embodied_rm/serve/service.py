"""What the service does, whichever way it is spoken to: bytes of a request in, bytes of an answer out."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from embodied_rm.serve.client.wire import Message, answer_of
from embodied_rm.serve.config import Limits, ServeConfig
from embodied_rm.serve.engine import Engine
from embodied_rm.serve.idle import tidy_when_idle
from embodied_rm.serve.meter import OK, Meter
from embodied_rm.serve.pictures import views_of
from embodied_rm.serve.protocol import (
    UNSEEN,
    Advance,
    AdvanceHeader,
    Begin,
    BeginHeader,
    Call,
    EndHeader,
    Episodes,
    Restore,
    RestoreHeader,
    Showing,
    ShowingHeader,
    counted,
    episodes_of,
    header_of,
    pixels_of,
    shown_in,
    told,
    unfit,
)
from embodied_rm.serve.queue import ADVANCE, BEGIN, RESTORE, FairQueue, Outcome, Remembered, Work
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.served import Served
from embodied_rm.serve.sessions import KINDS, UNKNOWN, Columns, Sessions, nothing_yet
from embodied_rm.types import Progress


class Judged(NamedTuple):
    """What came out of a request."""

    columns: Columns
    stored: bytes
    """The memory of its rows, where that was asked for and all of them were judged."""
    settled: asyncio.Future[None]
    """Done when that is remembered."""


class RewardService:
    """A reward model that judges episodes of many clients. `async with service:` runs it.

    Every `answer_*` takes the JSON of a request, the bytes behind it, and when its answer is of no use any more, by the
    loop's clock. Raises `RefusalError`.
    """

    def __init__(self, served: Served, config: ServeConfig) -> None:
        self.about, self.config, self.meter = served.about, config, Meter()
        self.draining = False
        self.sessions = Sessions(config.limits)
        self.queue = FairQueue(config.limits)
        self.engine = Engine(served, self.queue, self.meter, batch=config.batch, wait=config.wait_ms / 1000)
        self._decoders = ThreadPoolExecutor(1, thread_name_prefix="decode")
        self.asked: dict[str, Callable[[bytes | memoryview, memoryview, float], Coroutine[Any, Any, Message]]] = {
            "begin": self.answer_begin,
            "advance": self.answer_advance,
            "end": self.answer_end,
            "restore": self.answer_restore,
        }
        self.meter.watch("sessions", "Episodes under way", lambda: len(self.sessions))
        self.meter.watch("queue", "Requests that wait to be judged", lambda: len(self.queue))
        self.meter.watch("ready", "Whether it takes requests", lambda: float(self.ready))

    async def __aenter__(self) -> RewardService:
        await self.engine.__aenter__()
        self._tidy = asyncio.create_task(tidy_when_idle())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tidy.cancel()
        await self.engine.__aexit__(*error)
        self._decoders.shutdown()

    @property
    def limits(self) -> Limits:
        return self.config.limits

    @property
    def ready(self) -> bool:
        """Whether it takes requests: it judged what it was tested with as it should, and is not about to end."""
        return self.about.sound and self.engine.alive and not self.draining

    def refuse(self) -> None:
        """Raises `RefusalError` where no request is taken now, whatever it says."""
        if not self.ready:
            why = "it is about to end" if self.draining else "it does not judge as it did when its model was made"
            raise RefusalError(Why.NOT_READY, f"the service takes no requests: {why}", retry_after=1.0)
        self.queue.refuse_more()

    def refuse_other(self, name: str) -> None:
        """Raises `RefusalError` for a model that is not served here."""
        if name != self.about.name:
            raise RefusalError(Why.NO_SUCH_MODEL, f"no model {name[:60]!r} here, there is {self.about.name!r}")

    @contextmanager
    def counted(self, asked: str) -> Iterator[None]:
        """A request is read and answered inside: it is counted on its way in and out. Raises `RefusalError` where none
        is taken now, and what is raised inside."""
        loop = asyncio.get_running_loop()
        started, outcome = loop.time(), OK
        self.meter.accept(asked)
        try:
            self.refuse()
            yield
        except RefusalError as refusal:
            outcome = refusal.why.name.lower()
            raise
        except BaseException:
            outcome = Why.BROKEN.name.lower()
            raise
        finally:
            self.meter.answer(asked, loop.time() - started, outcome)

    def said(self, progress: Progress) -> Columns:
        """A judgement as it is sent, counted: what is no number is `UNKNOWN`."""
        self.meter.judged(progress)
        columns = {name: getattr(progress, name) for name in KINDS}
        for name in ("success", "ood"):
            columns[name] = np.where(np.isfinite(columns[name]), columns[name], np.float32(UNKNOWN))
        return {name: column.astype(KINDS[name], copy=False) for name, column in columns.items()}

    async def answer_begin(self, text: bytes | memoryview, blob: memoryview, expires: float) -> Message:
        header = header_of(BeginHeader, text)
        of = episodes_of(header, self.limits)
        instructions = told(header.instruction, len(of), self.limits)
        frames = await self._frames(header, of, blob)
        call = Begin(of=of, step=(0,) * len(of), instructions=instructions, **frames)
        return await self._answered(call, expires)

    async def answer_advance(self, text: bytes | memoryview, blob: memoryview, expires: float) -> Message:
        header = header_of(AdvanceHeader, text)
        of = episodes_of(header, self.limits)
        step = counted("step", header.step, len(of))
        if min(step) < 1:
            raise unfit("step", min(step), "from 1 on: step 0 is the frame that begins an episode")
        call = Advance(of=of, step=step, **await self._frames(header, of, blob))
        return await self._answered(call, expires)

    async def answer_end(self, text: bytes | memoryview, blob: memoryview, expires: float) -> Message:
        of = episodes_of(header_of(EndHeader, text), self.limits)
        refuse_bytes(blob)
        return answer_of({}, {"ended": self.sessions.end(of)})

    async def answer_restore(self, text: bytes | memoryview, blob: memoryview, expires: float) -> Message:
        header = header_of(RestoreHeader, text)
        of = episodes_of(header, self.limits)
        if header.state != len(blob):
            raise unfit("state", f"{len(blob)} bytes", f"{header.state}, as the JSON says")
        if not self.about.storable:
            raise RefusalError(
                Why.DOES_NOT_FIT, "state: what this model remembers cannot be sent along, and not sent back"
            )
        step, row = counted("step", header.step, len(of)), counted("row", header.row, len(of))
        if not 0 < header.rows <= self.limits.rows or max(row) >= header.rows:
            raise unfit("row", f"{max(row)} of {header.rows}", f"rows of at most {self.limits.rows}")
        call = Restore(of=of, step=step, shown=(UNSEEN,) * len(of), row=row, rows=header.rows, state=blob)
        self.sessions.refuse_restore(call)
        await (await self._judge(call, range(len(of)), expires)).settled
        return answer_of({}, {"restored": len(of)})

    async def _frames(self, header: ShowingHeader, of: Episodes, blob: memoryview) -> dict[str, Any]:
        """What a request shows, as a `Showing` has it. Encoded pictures are decoded in a thread."""
        pixels = pixels_of(header.frames, header.views, len(of), blob, self.limits)
        if pixels.pictures is None:
            views = views_of(pixels, self.limits)
        else:
            decode = functools.partial(views_of, pixels, self.limits)
            views = await asyncio.get_running_loop().run_in_executor(self._decoders, decode)
        return {"views": views, "shown": shown_in(len(of), pixels), "state": header.state}

    async def _answered(self, call: Showing, expires: float) -> Message:
        """The judgement of every row: of those that are new, and of those that were asked about before."""
        if call.state and not self.about.storable:
            raise RefusalError(
                Why.DOES_NOT_FIT, "state: what this model remembers cannot be sent along: ask without it"
            )
        rows = self.sessions.sort(call)
        if len(rows.fresh) == len(call.of):
            judged = await self._judge(call, rows.fresh, expires)
            return self._message(judged.columns, judged.stored)
        if rows.fresh:
            await (await self._judge(call, rows.fresh, expires)).settled
        for earlier in dict.fromkeys(rows.waiting):
            await self._in_time(earlier, expires)
        said = self.sessions.said(call)
        places = self.sessions.places(call.of, range(len(call.of)))
        return self._message(said, await self.engine.stored(places) if call.state else b"")

    def _message(self, said: Columns, stored: bytes) -> Message:
        return answer_of(said, {"model": self.about.version, "state": len(stored)}, stored)

    async def _judge(self, call: Call, rows: Sequence[int], expires: float) -> Judged:
        """Have these rows judged. What came out is remembered when it has been sent: before anything else is asked, and
        while whoever asked is reading."""
        settled = self.sessions.judge(call, rows)
        try:
            outcome = await self.engine.put(self._work(call, rows, expires))
        except BaseException:
            self.sessions.drop(call, rows)
            settled.set_result(None)
            raise
        columns = self._said(call, outcome, len(rows))

        def settle() -> None:
            self.sessions.settle(call, rows, outcome.slab, outcome.start, columns)
            settled.set_result(None)
            for shown in call.shown:  # and their frames are held no longer
                shown.count()

        self.sessions.soon(settle)
        return Judged(columns or {}, outcome.stored, settled)

    def _work(self, call: Call, rows: Sequence[int], expires: float) -> Work:
        loop, everyone = asyncio.get_running_loop(), len(rows) == len(call.of)
        work = functools.partial(
            Work, client=call.of.run, rows=len(rows), expires=expires, outcome=loop.create_future()
        )
        if isinstance(call, Restore):
            return work(kind=RESTORE, state=Remembered(call.state, call.rows, call.row))
        assert isinstance(call, Showing)
        views = call.views if everyone else call.views.rows(np.array(rows))
        work = functools.partial(work, views=views, stores=call.state and everyone)
        if isinstance(call, Begin):
            return work(kind=BEGIN, instructions=[call.instructions[row] for row in rows])
        return work(kind=ADVANCE, places=self.sessions.places(call.of, rows))

    def _said(self, call: Call, outcome: Outcome, rows: int) -> Columns | None:
        if isinstance(call, Restore):
            return None
        if outcome.progress is None:
            return nothing_yet(rows)
        return self.said(outcome.progress)

    async def _in_time(self, earlier: asyncio.Future[None], expires: float) -> None:
        left = expires - asyncio.get_running_loop().time()
        try:
            await asyncio.wait_for(asyncio.shield(earlier), max(left, 0))
        except TimeoutError:
            raise RefusalError(Why.TOO_LATE, "its time was over before it was judged") from None


def refuse_bytes(blob: memoryview) -> None:
    """Raises `RefusalError` for bytes of which the JSON does not speak."""
    if len(blob):
        raise RefusalError(Why.UNPARSABLE, f"{len(blob)} bytes behind the JSON, of which it does not speak")
