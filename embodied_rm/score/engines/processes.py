"""Scoring in processes of this machine, each with a model and a decoder of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from embodied_rm.errors import UserError
from embodied_rm.run import Silent
from embodied_rm.score.engines.here import score_here
from embodied_rm.score.job import Job
from embodied_rm.score.shards import Shard

IN_HAND = 2
"""Shards that a worker is given at once, so that it decodes the next one before it has judged the last."""


def score_in_processes(job: Job, shards: Sequence[Shard]) -> Iterator[Shard]:
    """The shards as they are stored, in any order.

    Raises what a worker raises, and `UserError` when one is killed. No worker outlives this generator, or its process.
    """
    waiting = deque(shards)
    crew: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(min(job.config.workers, len(shards))):
            pipe, process = started(job)
            crew[pipe] = process
        for _ in range(IN_HAND):
            for pipe in crew:
                give(pipe, waiting)
        while crew:
            ready = wait(list(crew))
            for pipe in [pipe for pipe in crew if pipe in ready]:
                answer = received(pipe, crew[pipe])
                if answer is None:
                    crew.pop(pipe).join()
                    continue
                give(pipe, waiting)
                yield answer
    finally:
        for process in crew.values():
            process.kill()
            process.join()


def started(job: Job) -> tuple[Connection, BaseProcess]:
    """A worker and the pipe to it. It is spawned: a fork would inherit the threads of torch, half of each."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(job, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def give(pipe: Connection, waiting: deque[Shard]) -> None:
    """The next shard for a worker; None: there is none. One that has died is noticed when its answer is awaited."""
    with suppress(ConnectionError):
        pipe.send(waiting.popleft() if waiting else None)


def received(pipe: Connection, process: BaseProcess) -> Shard | None:
    """A shard that a worker has stored; None: it has stored all that it was given."""
    try:
        answer = pipe.recv()
    except (EOFError, ConnectionError):
        process.join()
        if (process.exitcode or 0) >= 0:
            raise RuntimeError("a worker failed; its traceback is above") from None
        raise UserError(
            f"a worker was killed by signal {-(process.exitcode or 0)}, perhaps for want of memory: go on with "
            "resume=true and fewer workers"
        ) from None
    if isinstance(answer, UserError):
        raise answer
    return answer


def serve(job: Job, pipe: Connection) -> None:
    """A worker's life: shards in, the same out when they are stored, None at either end of the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it ends its workers
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        for shard in score_here(job, iter(pipe.recv, None), Silent()):
            pipe.send(shard)
        pipe.send(None)
    except UserError as mistake:
        pipe.send(mistake)


def end_with_parent() -> None:
    """End this process when the one that started it ends, however it ends: the shard in hand is another's by then."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
