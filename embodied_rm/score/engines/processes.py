"""Scoring in several processes of this machine, each with its own model and decoder."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from embodied_rm.errors import UserError
from embodied_rm.run_folder import NullReporter
from embodied_rm.score.job import ScoreJob, score_in_process
from embodied_rm.score.shards import Shard

SHARDS_IN_FLIGHT = 2  # shards per worker at a time, so that it can decode the next one while it scores the last


def score_in_processes(job: ScoreJob, shards: Sequence[Shard]) -> Iterator[Shard]:
    """Score shards, and yield each after it is stored, in any order; all workers end with this generator and process.

    `UserError`: a worker raises it or is killed. `RuntimeError`: it fails with another exception.
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
    """Start a worker and return the pipe to it. It is spawned, because torch threads do not survive a fork."""
    context = multiprocessing.get_context("spawn")
    parent_pipe, worker_pipe = context.Pipe()
    process = context.Process(target=worker_main, args=(job, worker_pipe), daemon=True)
    process.start()
    worker_pipe.close()
    return parent_pipe, process


def send_next_shard(pipe: Connection, pending: deque[Shard]) -> None:
    """Send the next shard to a worker, or None if there is none. A dead worker is detected by `receive_shard`."""
    with suppress(ConnectionError):
        pipe.send(pending.popleft() if pending else None)


def receive_shard(pipe: Connection, process: BaseProcess) -> Shard | None:
    """Return a shard that a worker stored; None: it stored all its shards."""
    try:
        message = pipe.recv()
    except (EOFError, ConnectionError):
        process.join()
        if (process.exitcode or 0) >= 0:
            raise RuntimeError("a worker ended without an answer") from None
        reason = f"was killed by signal {-(process.exitcode or 0)}, perhaps because memory ran out"
        raise UserError(f"a worker {reason}: continue with resume=true and fewer workers") from None
    if isinstance(message, UserError | RuntimeError):
        raise message
    return message


def worker_main(job: ScoreJob, pipe: Connection) -> None:
    """Receive shards, score them and send them back after they are stored. None marks the end in both directions."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends its workers
    threading.Thread(target=exit_with_parent, daemon=True).start()
    try:
        for shard in score_in_process(job, iter(pipe.recv, None), NullReporter()):
            pipe.send(shard)
        pipe.send(None)
    except UserError as error:
        pipe.send(error)
    except Exception:  # a bug: the parent prints it, as it prints its own
        pipe.send(RuntimeError(f"a worker failed:\n{traceback.format_exc()}"))


def exit_with_parent() -> None:
    """End this process when its parent ends for any reason, because another run may take over its shard."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
