"""State store: every slot keeps its row, and unused rows are released."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_models import HashState

from embodied_rm.serve.state_store import StateBatch, StateSlot, gather_states


def make_batch(values: list[int]) -> tuple[StateBatch, list[StateSlot]]:
    batch = StateBatch(HashState(torch.tensor(values)))
    return batch, [StateSlot(batch, row) for row in range(len(values))]


def test_all_rows_of_one_batch_are_not_copied() -> None:
    batch, slots = make_batch([3, 1, 4])
    rows = [(slot.batch.state, slot.row) for slot in slots]
    assert gather_states(rows) is batch.state
    assert gather_states(rows[::-1]).digest.tolist() == [4, 1, 3]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_of_several_batches_are_gathered_in_order(data) -> None:
    lists = data.draw(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=6), min_size=1, max_size=5))
    slots = [slot for values in lists for slot in make_batch(values)[1]]
    order = data.draw(st.permutations(range(len(slots))))
    selected = order[: data.draw(st.integers(1, len(order)))]
    flat = [value for values in lists for value in values]
    rows = [(slots[i].batch.state, slots[i].row) for i in selected]
    assert gather_states(rows).digest.tolist() == [flat[i] for i in selected]


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(12)), st.integers(0, 11))
def test_remaining_slots_keep_their_rows_and_sparse_batches_shrink(order: list[int], num_released: int) -> None:
    _, slots = make_batch([10 * i for i in range(12)])
    for i in order[:num_released]:
        slots[i].release()
    remaining = [slots[i] for i in order[num_released:]]
    for i, slot in zip(order[num_released:], remaining, strict=True):
        assert int(slot.batch.state.digest[slot.row]) == 10 * i
    assert len(remaining[0].batch) < 4 * len(remaining) + 4
    assert np.unique([id(slot.batch) for slot in remaining]).size == 1
