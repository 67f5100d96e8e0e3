"""Judges what waits, batch after batch, in a thread: while one batch is judged the next one comes together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors

from embodied_rm.checkpoint_io import serialised
from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, Storable
from embodied_rm.serve.meter import Meter
from embodied_rm.serve.queue import ADVANCE, BEGIN, FairQueue, Outcome, Work
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.restoring import refuse_other
from embodied_rm.serve.served import Served
from embodied_rm.serve.slabs import Row, Slab, gathered
from embodied_rm.types import Progress, Views


class Engine:
    """A model that judges whatever waits in a queue. `async with engine:` runs it."""

    def __init__(self, served: Served, queue: FairQueue, meter: Meter, *, batch: int, wait: float) -> None:
        """`batch`: rows judged side by side at most; `wait`: seconds that a smaller batch waits for more."""
        self._model, self._pattern, self._thread = served.model, served.pattern, served.thread
        self._queue, self._meter = queue, meter
        self._batch, self._wait = batch, wait
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Engine:
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def alive(self) -> bool:
        """Whether it still judges."""
        return self._task is not None and not self._task.done()

    def put(self, work: Work) -> asyncio.Future[Outcome]:
        """Have a piece of work done: what will come out of it, which may be a `RefusalError`. Raises `RefusalError`."""
        self._queue.put(work)
        self._some.set()
        return work.outcome

    async def stored(self, rows: Sequence[Row]) -> bytes:
        """The memory of episodes, as it is sent along."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, as_sent, rows)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._some.wait()
            await self._gather()
            works = self._queue.take(self._batch, loop.time())
            if not works:
                self._some.clear()
                continue
            await self._judge(works)
            await asyncio.sleep(0)  # whoever was answered may ask again before the next batch is taken

    async def _judge(self, works: Sequence[Work]) -> None:
        """Judge a batch. Where it fails as a whole each work is tried alone, so that one cannot spoil the others."""
        started = time.perf_counter()
        try:
            outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, self._together, works)
        except Exception as fault:
            for work in works:
                if len(works) > 1:
                    await self._judge([work])
                elif not work.outcome.done():
                    work.outcome.set_exception(self._told(fault))
            return
        self._meter.batch(sum(work.rows for work in works), time.perf_counter() - started)
        for work, outcome in zip(works, outcomes, strict=True):
            if not work.outcome.done():
                work.outcome.set_result(outcome)

    async def _gather(self) -> None:
        """Give a batch that is not full time to fill."""
        until = time.monotonic() + self._wait
        while self._wait and self._queue.rows < self._batch and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._wait / 8))

    def _told(self, fault: Exception) -> Exception:
        """As it is told to whoever asked."""
        if isinstance(fault, RefusalError):
            return fault
        if isinstance(fault, UserError):
            return RefusalError(Why.DOES_NOT_FIT, str(fault))
        self._meter.fault(fault)
        return RefusalError(Why.BROKEN, f"the model failed: {type(fault).__name__}")

    # In the thread

    def _together(self, works: Sequence[Work]) -> list[Outcome]:
        if works[0].kind == BEGIN:
            views = stacked([work.views for work in works if work.views is not None])
            memory: Memory = self._model.begin(views, [text for work in works for text in work.instructions])
            progress: Progress | None = None
        elif works[0].kind == ADVANCE:
            views = stacked([work.views for work in works if work.views is not None])
            progress, memory = self._advanced(gathered([row for work in works for row in work.places]), views)
        else:
            memory, progress = self._restored(works[0]), None
        slab, start = Slab(memory), 0
        outcomes: list[Outcome] = []
        for work in works:
            mine = slice(start, start + work.rows)
            stored = as_sent([(memory, row) for row in range(start, mine.stop)]) if work.stores else b""
            outcomes.append(Outcome(slab, start, None if progress is None else part(progress, mine), stored))
            start += work.rows
        return outcomes

    def _advanced(self, before: Memory, views: Views) -> tuple[Progress, Memory]:
        """One more frame of each; where the model says no number, nothing is said and nothing remembered."""
        progress, after = self._model.advance(before, views)
        bad = ~(np.isfinite(progress.value) & np.isfinite(progress.spread))
        if not bad.any():
            return progress, after
        rows = np.flatnonzero(bad)
        self._meter.non_finite(len(rows))
        value, spread = progress.value.copy(), progress.spread.copy()
        value[rows], spread[rows] = before.potential()[rows], 0
        held = replace(progress, value=value, spread=spread, valid=progress.valid & ~bad)
        return held, after.put(rows, before.take(rows))

    def _restored(self, work: Work) -> Memory:
        """The memory that was sent back. Raises `RefusalError` for what is none of this model's."""
        assert work.state is not None
        try:
            state = parse_tensors(bytes(work.state.content))
        except (SafetensorError, ValueError, KeyError, TypeError) as fault:
            raise RefusalError(Why.DOES_NOT_FIT, f"state: not the memory of episodes ({fault})") from None
        refuse_other(state, self._pattern, work.state.rows)
        return self._pattern.restored(state).take(np.array(work.state.wanted))


def as_sent(rows: Sequence[Row]) -> bytes:
    """The memory of these rows as a client can keep it, and send it back."""
    memory = gathered(rows)
    assert isinstance(memory, Storable)
    return serialised(memory.state())


def stacked(views: Sequence[Views]) -> Views:
    """Views of several works as one."""
    if len(views) == 1:
        return views[0]
    frames = np.concatenate([np.asarray(one.frames) for one in views])
    return Views(names=views[0].names, frames=frames)


def part(progress: Progress, rows: slice) -> Progress:
    """Some rows of a judgement."""
    return Progress(**{field.name: getattr(progress, field.name)[rows] for field in fields(progress)})
