"""Films in memory while they are learned from: a window over a dataset that is larger than memory.

Films enter in a seeded order, read in a thread before they are wanted, and leave in that order. Which are there depends
on the seed and the number of the update alone: a run that goes on has the same batches as one that was never away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np

from embodied_rm.data.film import AHEAD, ahead
from embodied_rm.errors import UserError
from embodied_rm.group import ALONE, Group
from embodied_rm.labels.identity import Glimpsed, end_of, fingerprint
from embodied_rm.types import Episode, Frames, IntArray

USES = 8
"""How often a film is drawn, on average, before it leaves."""
GB = 10**9


class Reel:
    """The pictures of one view, uint8 [T, H, W, 3]: there while the window is at their film."""

    dtype, ndim = np.dtype(np.uint8), 4

    def __init__(self, held: Mapping[int, Mapping[str, Frames]], film: int, view: str, shape: tuple[int, ...]) -> None:
        self._held, self._film, self._view, self.shape = held, film, view, shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Frames:
        return self._held[self._film][self._view][rows]


class Window:
    """So many bytes of pictures at once. First every film is glimpsed, then the window begins to move."""

    def __init__(self, read: Callable[[int], Episode], memory_gb: float) -> None:
        """`read` gives the film of a row as it is learned from, whoever asks and from whichever thread."""
        if not memory_gb > 0:
            raise UserError(f"memory_gb must be > 0 or null, got {memory_gb}")
        self._read, self.memory_gb, self._budget = read, memory_gb, int(memory_gb * GB)
        self._rows: list[int] = []
        self._bytes: list[int] = []
        self._held: dict[int, Mapping[str, Frames]] = {}

    def glimpse(self, row: int) -> Glimpsed:
        """Look at a film once: what is known of it, without its pictures. Raises `DataError` as reading does."""
        episode, film = self._read(row), len(self._rows)
        self._rows.append(row)
        self._bytes.append(sum(frames.nbytes for frames in episode.views.values()))
        if self.holds_all:
            self._held[film] = episode.views
        else:
            self._held.clear()
        reels: dict[str, Any] = {v: Reel(self._held, film, v, f.shape) for v, f in episode.views.items()}
        known = {f.name: getattr(episode, f.name) for f in fields(Episode)} | {"state": None, "action": None}
        return Glimpsed(**{**known, "views": reels}, film=fingerprint(episode), end=end_of(episode))

    @property
    def holds_all(self) -> bool:
        """Whether it need not move: each of a group then holds all films."""
        return sum(self._bytes) <= self._budget

    def settings(self, group: Group) -> dict[str, Any]:
        """What batches depend on, if it moves."""
        return {} if self.holds_all else {"memory_gb": self.memory_gb, "processes": group.size}

    def begin(self, seed: int, batch: int, group: Group = ALONE) -> None:
        """Get ready to move over the films glimpsed. Each of a group has its own lane, of every so-manieth film, in
        which it draws its share of every batch. Raises `UserError` when the window may hold less than such a share."""
        self._seed, self._group, self._share = seed, group, group.share(batch, "batch")
        self._sizes = np.array(self._bytes)
        self._order = lru_cache(64)(lambda epoch: np.random.default_rng([seed, epoch, 2]).permutation(len(self._rows)))
        self._counts: Counter[int] = Counter()
        self._next: Generator[tuple[int, Mapping[str, Frames]]] | None = None
        need = (self._share + AHEAD) * int(self._sizes.max())
        if not self.holds_all and need > self._budget:
            raise UserError(
                f"memory_gb={self.memory_gb:g} may hold fewer films than the {self._share} that a process draws for "
                f"batch={batch}, beside {AHEAD} that are read ahead: set memory_gb={need / GB:.3g} or more"
            )

    def lanes(self, update: int) -> list[IntArray] | None:
        """The films that each process may draw in an update; None: all of them. Those of this process are there
        when this returns. To be asked update by update."""
        if self.holds_all:
            return None
        self._move(self._span(self._group.rank, update))
        return [np.unique(self._films(lane, self._span(lane, update))) for lane in range(self._group.size)]

    def end(self) -> None:
        """Read no further."""
        if self._next is not None:
            self._next.close()

    def _span(self, lane: int, update: int) -> range:
        """Which films of a lane, by their places in it, are in the window: with those read ahead they fit."""
        most = self._budget // int(self._sizes.min()) + 1
        first = self._fitting(self._films(lane, range(most))) - AHEAD
        stop = first + update * self._share // USES
        films = self._films(lane, range(max(0, stop + AHEAD - most), stop + AHEAD))
        return range(stop + AHEAD - self._fitting(films[::-1]), stop)

    def _fitting(self, films: IntArray) -> int:
        """How many of these films, from the first on, fit."""
        return int(np.searchsorted(np.cumsum(self._sizes[films]), self._budget, side="right"))

    def _films(self, lane: int, places: range) -> IntArray:
        """The films at these places of a lane."""
        at = np.arange(places.start, places.stop) * self._group.size + lane
        if not len(at):
            return at
        first, last = at[[0, -1]] // len(self._rows)
        order = np.concatenate([self._order(epoch) for epoch in range(first, last + 1)])
        return order[at - first * len(self._rows)]

    def _move(self, span: range) -> None:
        """Let films go and take others in, until those of the span are there."""
        if self._next is None:
            self._at = range(span.start, span.start)
            self._next = ahead(self._reading(span.start))
        self._forget(range(self._at.start, span.start))
        for _ in range(self._at.stop, span.stop):
            film, views = next(self._next)
            self._held[film] = views
            self._counts[film] += 1
        self._at = span

    def _forget(self, places: range) -> None:
        for film in self._films(self._group.rank, places).tolist():
            self._counts[film] -= 1
            if not self._counts[film]:
                del self._held[film]

    def _reading(self, place: int) -> Iterator[tuple[int, Mapping[str, Frames]]]:
        """The films of this process's lane from a place on, without end."""
        while True:
            (film,) = self._films(self._group.rank, range(place, place + 1)).tolist()
            yield film, self._read(self._rows[film]).views
            place += 1
