"""Which moments a batch shows: the ends always, every size of hop, neighbors."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.labels.hops import hop
from embodied_rm.train.frame_sampling import MAX_ADJACENT_OFFSET_FRAMES, sample_frames

episodes = arrays(np.float32, st.integers(1, 50), elements=st.floats(0, 1, width=32))


@given(episodes, st.integers(3, 20), st.integers(0, 2**32))
def test_timesteps_lie_in_the_episode_and_begin_with_its_ends(progress, count, seed):
    timesteps = sample_frames(progress, count, np.random.default_rng(seed))
    assert timesteps.shape == (count,)
    assert timesteps[0] == 0 and timesteps[1] == len(progress) - 1
    assert ((timesteps >= 0) & (timesteps < len(progress))).all()


def test_the_same_generator_gives_the_same_timesteps():
    progress = np.linspace(0, 1, 40, dtype=np.float32)
    first, again = (sample_frames(progress, 8, np.random.default_rng(3)) for _ in range(2))
    assert (first == again).all()


def test_hops_of_all_sizes_zero_and_backwards_occur_even_in_an_episode_that_mostly_stalls():
    progress = np.concatenate([np.linspace(0, 0.8, 20), np.full(180, 0.8)]).astype(np.float32)
    rng = np.random.default_rng(0)
    hops, gaps = [], []
    for _ in range(200):
        timesteps = sample_frames(progress, 8, rng)
        p, q = np.meshgrid(timesteps, timesteps)
        hops.append(hop(progress[p], progress[q]).ravel())
        gaps.append((q - p).ravel())
    counts, _ = np.histogram(np.concatenate(hops), bins=np.linspace(-1, 0.8, 10))
    assert (counts > 0.01 * counts.sum()).all()
    assert np.mean(np.concatenate(hops) == 0) > 0.02
    small = np.abs(np.concatenate(gaps))
    assert np.mean((small > 0) & (small <= MAX_ADJACENT_OFFSET_FRAMES)) > 0.1
