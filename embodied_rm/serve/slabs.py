"""What is remembered of many episodes, kept as the batches left it: a memory of N rows, and who owns which row.

Whoever is judged together stays together: the next batch of the same episodes takes the memory as it is, and copies
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.models.base import Memory

SPARSE = 4
"""A memory of which less than one row in so many is still owned is cut down."""


class Slab:
    """A memory, and the places in it that are owned."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.owned: set[Place] = set()

    def __len__(self) -> int:
        return len(self.memory)

    def tidy(self) -> None:
        """Where few are left, move them to a memory of their own."""
        if not self.owned or len(self.owned) * SPARSE >= len(self):
            return
        left = list(self.owned)
        smaller = Slab(self.memory.take(np.array([place.row for place in left])))
        for row, place in enumerate(left):
            place.move(smaller, row)


class Place:
    """One row of a slab, which belongs to one episode."""

    __slots__ = ("row", "slab")

    def __init__(self, slab: Slab, row: int) -> None:
        self.slab, self.row = slab, row
        slab.owned.add(self)

    def move(self, slab: Slab, row: int) -> Slab:
        """Be another row; the slab that was left, which wants to be tidied when all have left it that will."""
        before = self.slab
        before.owned.discard(self)
        slab.owned.add(self)
        self.slab, self.row = slab, row
        return before

    def leave(self) -> None:
        """Give the row up."""
        self.slab.owned.discard(self)
        self.slab.tidy()


Row = tuple[Memory, int]
"""A memory and a row of it, as they are now: memories never change."""


def gathered(rows: Sequence[Row]) -> Memory:
    """One memory of all these rows, in their order."""
    memories = list({id(memory): memory for memory, _ in rows}.values())
    at = np.array([row for _, row in rows])
    if len(memories) == 1:
        (memory,) = memories
        whole = len(at) == len(memory) and bool((at == np.arange(len(at))).all())
        return memory if whole else memory.take(at)
    all_of_them = memories[0].take(np.zeros(len(rows), np.int64))
    for memory in memories:
        mine = np.array([number for number, (one, _) in enumerate(rows) if one is memory])
        all_of_them = all_of_them.put(mine, memory.take(at[mine]))
    return all_of_them
