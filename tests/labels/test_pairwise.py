"""Comparisons of two frames."""

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
def test_preference_matrix_is_antisymmetric(progress):
    matrix = preference_matrix(progress)
    assert (matrix + matrix.swapaxes(1, 2) == 1).all()
    assert (matrix[:, np.arange(6), np.arange(6)] == 0.5).all()


@given(curves)
def test_preferences_agree_with_hops_and_reverse_with_time(progress):
    matrix, hops = preference_matrix(progress), hop(progress[:, :, None], progress[:, None])
    assert (preference_matrix(progress[:, ::-1]) == matrix[:, ::-1, ::-1]).all()
    assert (hops[matrix == 1] > 0).all() and (hops[matrix == 0] < 0).all()


def test_stagnation_is_a_tie():
    assert (preference_matrix(np.full((1, 4), 0.3, np.float32)) == 0.5).all()
    progress = np.array([0.5, 0.5 + TIE_MARGIN / 2, 0.5 + 2 * TIE_MARGIN], np.float32)
    assert preference_matrix(progress)[0].tolist() == [0.5, 0.5, 1]


@given(times)
def test_adjacent_pairs_chain_all_frames_in_both_directions(frame_indices):
    pairs = adjacent_mask(frame_indices)
    assert (pairs == pairs.swapaxes(1, 2)).all() and (pairs.sum(axis=(1, 2)) == 2 * 5).all()
    for row, timesteps in zip(pairs, frame_indices, strict=True):
        p, q = np.nonzero(row)
        between = (timesteps > np.minimum(timesteps[p], timesteps[q])[:, None]) & (
            timesteps < np.maximum(timesteps[p], timesteps[q])[:, None]
        )
        assert not between.any()
