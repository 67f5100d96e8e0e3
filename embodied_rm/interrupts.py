"""Interruptions of a command, by Ctrl-C (SIGINT) or by the system (SIGTERM), at a point where its state is whole."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM)."""


def raise_when_terminated() -> None:
    """Let SIGTERM raise `Terminated` in the main thread, so that a command saves and cleans up as at Ctrl-C."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _raise_terminated)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated


def wait_until_interrupted() -> None:
    """Wait for Ctrl-C or SIGTERM, for which a library may have set a handler of its own."""
    raise_when_terminated()
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)  # signal.pause() would miss a signal that comes just before it


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Run a block to its end; an interruption that comes meanwhile is raised after it.

    A second one is raised at once. Only the main thread is interrupted, so elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        if received and callable(handler):
            handler(number, frame)
        received.append(number)

    try:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, note)
        yield
    finally:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)
    for received_number in received[:1]:
        handler = handlers[signal.Signals(received_number)]
        assert callable(handler)
        handler(received_number, None)
