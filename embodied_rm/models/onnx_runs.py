"""Runs of ONNX graphs that can be ended: by a limit of time, and by Ctrl-C.

A graph of a few bytes can multiply matrices for hours. A run ends between two of its operators, and the memory limit
bounds the time of one operator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from threading import current_thread
from typing import Any, TypeVar

from embodied_rm.errors import CheckpointError

MAX_RUN_S = 300.0
"""Seconds after which a run is ended; the largest batch of a large encoder takes a few."""
THREAD_PREFIX = "onnx"
MAX_THREADS = 32  # that wait for runs of one graph each

T = TypeVar("T")
_active_options: set[Any] = set()


def run_session(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return the outputs of a session of ONNX Runtime.

    Raises:
        CheckpointError: It takes longer than `MAX_RUN_S`.
    """
    if current_thread().name.startswith(THREAD_PREFIX):  # whoever started this thread waits for it
        return _run(session, feeds)
    (outputs,) = wait_for_runs([_single_runs(os.getpid()).submit(_run, session, feeds)])
    return outputs


@cache
def _single_runs(process_id: int) -> ThreadPoolExecutor:
    """Return the threads of a process that wait for single runs; a fork does not inherit those of its parent."""
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=THREAD_PREFIX)


def wait_for_runs(futures: Iterable[Future[T]]) -> list[T]:
    """Return the results of futures that run graphs; at Ctrl-C or after `MAX_RUN_S`, end all runs of this process."""
    try:
        return [future.result(MAX_RUN_S) for future in futures]
    except TimeoutError:
        end_runs()
        raise CheckpointError(f"a graph ran longer than {MAX_RUN_S:g} s and was ended: export it again") from None
    except BaseException:
        end_runs()
        raise


def end_runs() -> None:
    """Let all running graphs of this process end with an error."""
    for options in list(_active_options):
        options.terminate = True


def _run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime as ort  # optional

    options = ort.RunOptions()
    _active_options.add(options)
    try:
        outputs: list[Any] = session.run(None, feeds, options)
    finally:
        _active_options.discard(options)
    return outputs


def map_in_threads(executor: ThreadPoolExecutor, fn: Callable[[slice], T], parts: Iterable[slice]) -> list[T]:
    """Apply a function that runs graphs to parts of a batch, in parallel."""
    return wait_for_runs([executor.submit(fn, part) for part in parts])
