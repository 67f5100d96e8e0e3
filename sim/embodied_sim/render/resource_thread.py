"""A thread that owns one thing from birth to death: OpenGL contexts may not change threads."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
Job = tuple[Callable[[T], None], "Future[None]"]


class ResourceThread(Generic[T]):
    """Enters `owned` in a thread of its own, runs jobs on it there, and leaves it there when stopped."""

    def __init__(self, open_resource: Callable[[], AbstractContextManager[T]]) -> None:
        """Raises whatever entering `owned` raises."""
        jobs: SimpleQueue[Job[T] | None] = SimpleQueue()
        ready: Future[None] = Future()
        # The thread must not hold the worker, or dropping the last reference to it would never stop the thread.
        thread = threading.Thread(target=_run_thread, args=(open_resource, jobs, ready), daemon=True)
        thread.start()
        self._jobs = jobs
        self._stop = weakref.finalize(self, _stop_thread, jobs, thread)
        # At exit the libraries below may be gone already: the thread just ends with the process.
        self._stop.atexit = False
        ready.result()

    def submit(self, job: Callable[[T], None]) -> Future[None]:
        """Run `job` on what is owned, after the jobs before it. The future carries its exception, if any."""
        assert self._stop.alive, "the worker was stopped"
        future: Future[None] = Future()
        self._jobs.put((job, future))
        return future

    def stop(self) -> None:
        """Finish the jobs under way, let go of what is owned, end the thread. Twice is once."""
        self._stop()


def _run_thread(
    open_resource: Callable[[], AbstractContextManager[T]], jobs: SimpleQueue[Job[T] | None], ready: Future[None]
) -> None:
    with contextlib.ExitStack() as stack:
        try:
            resource = stack.enter_context(open_resource())
        except BaseException as error:  # handed to the thread that waits for it
            ready.set_exception(error)
            return
        ready.set_result(None)
        while (item := jobs.get()) is not None:
            _run_job(resource, *item)
            del item


def _run_job(resource: T, job: Callable[[T], None], future: Future[None]) -> None:
    try:
        job(resource)
    except BaseException as error:  # handed to the thread that waits for it
        future.set_exception(error)
    else:
        future.set_result(None)


def _stop_thread(jobs: SimpleQueue[Job[T] | None], thread: threading.Thread) -> None:
    jobs.put(None)
    thread.join()
