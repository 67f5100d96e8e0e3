"""What is remembered of many episodes, kept as the batches left it: a memory of N rows, and who owns which row.

Whoever is judged together stays together: the next batch of the same episodes takes the memory as it is, and copies
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.models.reward_model import RewardState

COMPACTION_FACTOR = 4
"""A memory of which less than one row in so many is still owned is cut down."""


class StateBatch:
    """A memory, and the places in it that are owned."""

    def __init__(self, state: RewardState) -> None:
        self.state = state
        self.slots: set[StateSlot] = set()

    def __len__(self) -> int:
        return len(self.state)

    def compact(self) -> None:
        """Where few are left, move them to a memory of their own."""
        if not self.slots or len(self.slots) * COMPACTION_FACTOR >= len(self):
            return
        remaining = list(self.slots)
        compacted = StateBatch(self.state.take(np.array([slot.row for slot in remaining])))
        for row, slot in enumerate(remaining):
            slot.move(compacted, row)


class StateSlot:
    """One row of a slab, which belongs to one episode."""

    __slots__ = ("batch", "row")

    def __init__(self, batch: StateBatch, row: int) -> None:
        self.batch, self.row = batch, row
        batch.slots.add(self)

    def move(self, batch: StateBatch, row: int) -> StateBatch:
        """Be another row; the slab that was left, which wants to be tidied when all have left it that will."""
        previous = self.batch
        previous.slots.discard(self)
        batch.slots.add(self)
        self.batch, self.row = batch, row
        return previous

    def release(self) -> None:
        """Give the row up."""
        self.batch.slots.discard(self)
        self.batch.compact()


StateRow = tuple[RewardState, int]
"""A memory and a row of it, as they are now: memories never change."""


def gather_states(rows: Sequence[StateRow]) -> RewardState:
    """One memory of all these rows, in their order."""
    states = list({id(state): state for state, _ in rows}.values())
    row_indices = np.array([row for _, row in rows])
    if len(states) == 1:
        (state,) = states
        is_whole_batch = len(row_indices) == len(state) and bool((row_indices == np.arange(len(row_indices))).all())
        return state if is_whole_batch else state.take(row_indices)
    gathered_state = states[0].take(np.zeros(len(rows), np.int64))
    for state in states:
        positions = np.array([position for position, (other, _) in enumerate(rows) if other is state])
        gathered_state = gathered_state.put(positions, state.take(row_indices[positions]))
    return gathered_state
