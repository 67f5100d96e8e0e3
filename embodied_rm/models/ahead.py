"""What comes next is made ready while what is there is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Things that are made by number, of which the next one is made in a thread of its own. A context: leaving it waits
    for that thread."""

    def __init__(self, make: Callable[[int], T]) -> None:
        """`make` must depend on nothing but the number: it is called before the one before has been used."""
        self._make, self._pool = make, ThreadPoolExecutor(1)
        self._next: tuple[int, Future[T]] | None = None

    def __enter__(self) -> Ahead[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def take(self, number: int) -> T:
        """The one of that number; what goes wrong in making it is raised here."""
        known = self._next is not None and self._next[0] == number
        ready = self._next[1] if known and self._next is not None else self._pool.submit(self._make, number)
        self._next = number + 1, self._pool.submit(self._make, number + 1)
        return ready.result()
