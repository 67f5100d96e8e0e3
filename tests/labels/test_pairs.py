"""Laws of comparisons of two frames."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.labels.hops import hop
from embodied_rm.labels.pairwise import TIE_MARGIN, adjacent_mask, preference_matrix

curves = arrays(np.float32, (2, 6), elements=st.floats(0, 1, width=32))
times = arrays(np.int64, (2, 6), elements=st.integers(0, 30))


@given(curves)
def test_whoever_is_closer_the_other_is_farther_and_nobody_is_closer_than_itself(progress):
    told = preference_matrix(progress)
    assert (told + told.swapaxes(1, 2) == 1).all()
    assert (told[:, np.arange(6), np.arange(6)] == 0.5).all()


@given(curves)
def test_time_reversal_inverts_and_order_agrees_with_the_hop(progress):
    told, hops = preference_matrix(progress), hop(progress[:, :, None], progress[:, None])
    assert (preference_matrix(progress[:, ::-1]) == told[:, ::-1, ::-1]).all()
    assert (hops[told == 1] > 0).all() and (hops[told == 0] < 0).all()


def test_stagnation_favours_neither():
    assert (preference_matrix(np.full((1, 4), 0.3, np.float32)) == 0.5).all()
    assert preference_matrix(np.array([0.5, 0.5 + TIE_MARGIN / 2, 0.5 + 2 * TIE_MARGIN], np.float32))[0].tolist() == [
        0.5,
        0.5,
        1,
    ]


@given(times)
def test_neighbors_chain_all_timesteps_in_the_order_of_time_both_ways(at):
    pairs = adjacent_mask(at)
    assert (pairs == pairs.swapaxes(1, 2)).all() and (pairs.sum(axis=(1, 2)) == 2 * 5).all()
    for row, timesteps in zip(pairs, at, strict=True):
        p, q = np.nonzero(row)
        between = (timesteps > np.minimum(timesteps[p], timesteps[q])[:, None]) & (
            timesteps < np.maximum(timesteps[p], timesteps[q])[:, None]
        )
        assert not between.any()
