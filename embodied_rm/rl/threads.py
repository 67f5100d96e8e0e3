"""How many threads the networks of the learner run on: one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread inside; also a decorator.

    Networks this small gain nothing from more, and on a busy machine threads that wait for each other were measured
    to make an update twenty times slower.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
