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


class Place:
    """One row of a slab, which belongs to one episode. Moves when the slab is cut down."""

    __slots__ = ("row", "slab")

    def __init__(self, slab: Slab, row: int) -> None:
        self.slab, self.row = slab, row
        slab.owned.add(self)

    def leave(self) -> None:
        """Give the row up."""
        owned = self.slab.owned
        owned.discard(self)
        if owned and len(owned) * SPARSE < len(self.slab):
            self._cut_down()

    def _cut_down(self) -> None:
        """Move all that are left to a memory of their own."""
        left = list(self.slab.owned)
        smaller = Slab(self.slab.memory.take(np.array([place.row for place in left])))
        for row, place in enumerate(left):
            place.slab, place.row = smaller, row
            smaller.owned.add(place)
        self.slab.owned.clear()


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
