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
from embodied_rm.run_folder import NullReporter
from embodied_rm.score.engines.in_process import score_in_process
from embodied_rm.score.job import ScoreJob
from embodied_rm.score.shards import Shard

SHARDS_IN_FLIGHT = 2
"""Shards that a worker is given at once, so that it decodes the next one before it has judged the last."""


def score_in_processes(job: ScoreJob, shards: Sequence[Shard]) -> Iterator[Shard]:
    """The shards as they are stored, in any order.

    Raises what a worker raises, and `UserError` when one is killed. No worker outlives this generator, or its process.
    """
    pending = deque(shards)
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(min(job.config.num_workers, len(shards))):
            pipe, process = start_worker(job)
            workers[pipe] = process
        for _ in range(SHARDS_IN_FLIGHT):
            for pipe in workers:
                send_next_shard(pipe, pending)
        while workers:
            ready = wait(list(workers))
            for pipe in [pipe for pipe in workers if pipe in ready]:
                shard = receive_shard(pipe, workers[pipe])
                if shard is None:
                    workers.pop(pipe).join()
                    continue
                send_next_shard(pipe, pending)
                yield shard
    finally:
        for process in workers.values():
            process.kill()
            process.join()


def start_worker(job: ScoreJob) -> tuple[Connection, BaseProcess]:
    """A worker and the pipe to it. It is spawned: a fork would inherit the threads of torch, half of each."""
    context = multiprocessing.get_context("spawn")
    parent_pipe, worker_pipe = context.Pipe()
    process = context.Process(target=worker_main, args=(job, worker_pipe), daemon=True)
    process.start()
    worker_pipe.close()
    return parent_pipe, process


def send_next_shard(pipe: Connection, pending: deque[Shard]) -> None:
    """The next shard for a worker; None: there is none. One that has died is noticed when its answer is awaited."""
    with suppress(ConnectionError):
        pipe.send(pending.popleft() if pending else None)


def receive_shard(pipe: Connection, process: BaseProcess) -> Shard | None:
    """A shard that a worker has stored; None: it has stored all that it was given."""
    try:
        message = pipe.recv()
    except (EOFError, ConnectionError):
        process.join()
        if (process.exitcode or 0) >= 0:
            raise RuntimeError("a worker failed; its traceback is above") from None
        raise UserError(
            f"a worker was killed by signal {-(process.exitcode or 0)}, perhaps for want of memory: go on with "
            "resume=true and fewer workers"
        ) from None
    if isinstance(message, UserError):
        raise message
    return message


def worker_main(job: ScoreJob, pipe: Connection) -> None:
    """A worker's life: shards in, the same out when they are stored, None at either end of the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it ends its workers
    threading.Thread(target=exit_with_parent, daemon=True).start()
    try:
        for shard in score_in_process(job, iter(pipe.recv, None), NullReporter()):
            pipe.send(shard)
        pipe.send(None)
    except UserError as error:
        pipe.send(error)


def exit_with_parent() -> None:
    """End this process when the one that started it ends, however it ends: the shard in hand is another's by then."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
