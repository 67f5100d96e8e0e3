"""States of many episodes, stored as the batches that produced them, with one slot per episode.

The next batch of the same episodes uses the stored state directly, without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.models.reward_model import RewardState

COMPACTION_FACTOR = 4  # a batch with fewer than 1 in `COMPACTION_FACTOR` rows in use is compacted


class StateBatch:
    """The state of one batch, and the slots in use."""

    def __init__(self, state: RewardState) -> None:
        self.state = state
        self.slots: set[StateSlot] = set()

    def __len__(self) -> int:
        return len(self.state)

    def compact(self) -> None:
        """Move the remaining slots to a smaller batch, if few are in use."""
        if not self.slots or len(self.slots) * COMPACTION_FACTOR >= len(self):
            return
        remaining = list(self.slots)
        compacted = StateBatch(self.state.take(np.array([slot.row for slot in remaining])))
        for row, slot in enumerate(remaining):
            slot.move(compacted, row)


class StateSlot:
    """One row of a batch, owned by one episode."""

    __slots__ = ("batch", "row")

    def __init__(self, batch: StateBatch, row: int) -> None:
        self.batch, self.row = batch, row
        batch.slots.add(self)

    def move(self, batch: StateBatch, row: int) -> StateBatch:
        """Move to another row. Returns the previous batch; the caller compacts it after all moves."""
        previous = self.batch
        previous.slots.discard(self)
        batch.slots.add(self)
        self.batch, self.row = batch, row
        return previous

    def release(self) -> None:
        """Release the row."""
        self.batch.slots.discard(self)
        self.batch.compact()


StateRow = tuple[RewardState, int]  # A state and a row of it. States are immutable.


def gather_states(rows: Sequence[StateRow]) -> RewardState:
    """Return the states of these rows as one state, in order."""
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
