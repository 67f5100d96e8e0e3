"""A thread that owns a resource for its whole lifetime; OpenGL contexts must not change threads."""

import contextlib
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
STOP_TIMEOUT_S = 30.0  # a thread that does not return from OpenGL ends with the process
Job = tuple[Callable[[T], None], "Future[None]"]


class ResourceThread(Generic[T]):
    """Opens a resource in its own thread, runs jobs on it there, and closes it there when stopped."""

    def __init__(self, open_resource: Callable[[], AbstractContextManager[T]]) -> None:
        """Start the thread. Raises the exception of `open_resource`, if any."""
        jobs: SimpleQueue[Job[T] | None] = SimpleQueue()
        ready: Future[None] = Future()
        # The thread must not reference `self`, or dropping the last other reference would never stop it.
        thread = threading.Thread(target=_run_thread, args=(open_resource, jobs, ready), daemon=True)
        thread.start()
        self._jobs = jobs
        self._stop = weakref.finalize(self, _stop_thread, jobs, thread)
        # At exit the native libraries may be unloaded already: the thread ends with the process.
        self._stop.atexit = False
        ready.result()

    def submit(self, job: Callable[[T], None]) -> Future[None]:
        """Queue a job on the resource. The future carries its exception, if any."""
        assert self._stop.alive, "the worker was stopped"
        future: Future[None] = Future()
        self._jobs.put((job, future))
        return future

    def stop(self) -> None:
        """Finish all jobs, close the resource and end the thread. May be called twice."""
        self._stop()


def _run_thread(
    open_resource: Callable[[], AbstractContextManager[T]], jobs: SimpleQueue[Job[T] | None], ready: Future[None]
) -> None:
    with contextlib.ExitStack() as stack:
        try:
            resource = stack.enter_context(open_resource())
        except BaseException as error:  # re-raised in the waiting thread
            ready.set_exception(error)
            return
        ready.set_result(None)
        while (item := jobs.get()) is not None:
            _run_job(resource, *item)
            del item


def _run_job(resource: T, job: Callable[[T], None], future: Future[None]) -> None:
    try:
        job(resource)
    except BaseException as error:  # re-raised in the waiting thread
        future.set_exception(error)
    else:
        future.set_result(None)


def _stop_thread(jobs: SimpleQueue[Job[T] | None], thread: threading.Thread) -> None:
    jobs.put(None)
    thread.join(STOP_TIMEOUT_S)
