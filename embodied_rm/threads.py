"""Threads of torch, and functions that run concurrently."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run torch on that many threads inside the context; also a decorator.

    Small networks gain nothing from more than one. On a busy machine, waiting threads made updates twenty times slower.
    """
    previous_count = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous_count)


def count_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def run_concurrently(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """Run two functions concurrently, and return both results.

    The second one runs in a thread of its own, with one torch thread and in inference mode; the caller must run in
    these modes too. An exception of the first function, else of the second, is raised after both ended.
    """
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(torch_threads(1)(torch.inference_mode()(second)))
        return first(), future.result()
