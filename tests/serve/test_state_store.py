"""Memory of many episodes: whoever owns a row finds it, and what nobody owns is let go."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_models import HashState

from embodied_rm.serve.state_store import StateBatch, StateSlot, gather_states


def slab(values: list[int]) -> tuple[StateBatch, list[StateSlot]]:
    whole = StateBatch(HashState(torch.tensor(values)))
    return whole, [StateSlot(whole, row) for row in range(len(values))]


def test_the_same_rows_again_are_not_copied() -> None:
    whole, places = slab([3, 1, 4])
    rows = [(place.batch.state, place.row) for place in places]
    assert gather_states(rows) is whole.state
    assert gather_states(rows[::-1]).digest.tolist() == [4, 1, 3]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_of_many_memories_come_together_in_their_order(data) -> None:
    lists = data.draw(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=6), min_size=1, max_size=5))
    places = [place for values in lists for place in slab(values)[1]]
    order = data.draw(st.permutations(range(len(places))))
    kept = order[: data.draw(st.integers(1, len(order)))]
    flat = [value for values in lists for value in values]
    rows = [(places[i].batch.state, places[i].row) for i in kept]
    assert gather_states(rows).digest.tolist() == [flat[i] for i in kept]


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(12)), st.integers(0, 11))
def test_who_stays_keeps_its_row_and_a_sparse_memory_shrinks(order: list[int], gone: int) -> None:
    _, places = slab([10 * i for i in range(12)])
    for i in order[:gone]:
        places[i].release()
    left = [places[i] for i in order[gone:]]
    for i, place in zip(order[gone:], left, strict=True):
        assert int(place.batch.state.digest[place.row]) == 10 * i
    assert len(left[0].batch) < 4 * len(left) + 4
    assert np.unique([id(place.batch) for place in left]).size == 1
