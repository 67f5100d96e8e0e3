"""How many threads a network of the learner runs on: one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch on one thread inside; also a decorator.

    Networks this small gain nothing from more, and on a busy machine threads that wait for each other were measured
    to make an update twenty times slower.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def count_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def run_concurrently(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """What both return, the second run in a thread of its own, as `one_thread` and in inference mode, as the
    caller must run the first. Raises what the first raises, or else what the second does, once both have ended."""
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(single_thread()(torch.inference_mode()(second)))
        return first(), future.result()
