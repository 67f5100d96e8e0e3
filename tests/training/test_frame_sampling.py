"""Sampled frames: both ends, hops of all sizes, adjacent frames."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.labels.hops import hop
from embodied_rm.training.batches import MAX_ADJACENT_OFFSET_FRAMES, sample_frames

curves = arrays(np.float32, st.integers(1, 50), elements=st.floats(0, 1, width=32))


@given(curves, st.integers(3, 20), st.integers(0, 2**32))
def test_frames_are_in_range_and_start_with_both_ends(progress, count, seed):
    frames = sample_frames(progress, count, np.random.default_rng(seed))
    assert frames.shape == (count,)
    assert frames[0] == 0 and frames[1] == len(progress) - 1
    assert ((frames >= 0) & (frames < len(progress))).all()


def test_same_generator_gives_the_same_frames():
    progress = np.linspace(0, 1, 40, dtype=np.float32)
    first, second = (sample_frames(progress, 8, np.random.default_rng(3)) for _ in range(2))
    assert (first == second).all()


def test_hops_of_all_sizes_occur_in_a_stalled_episode():
    progress = np.concatenate([np.linspace(0, 0.8, 20), np.full(180, 0.8)]).astype(np.float32)
    rng = np.random.default_rng(0)
    hops, gaps = [], []
    for _ in range(200):
        frames = sample_frames(progress, 8, rng)
        p, q = np.meshgrid(frames, frames)
        hops.append(hop(progress[p], progress[q]).ravel())
        gaps.append((q - p).ravel())
    counts, _ = np.histogram(np.concatenate(hops), bins=np.linspace(-1, 0.8, 10))
    assert (counts > 0.01 * counts.sum()).all()
    assert np.mean(np.concatenate(hops) == 0) > 0.02
    small = np.abs(np.concatenate(gaps))
    assert np.mean((small > 0) & (small <= MAX_ADJACENT_OFFSET_FRAMES)) > 0.1
