"""Reward-aligned cloning: what gains progress is imitated, what loses it is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.errors import DataError
from embodied_rm.rl.cloning.bc import CloneConfig, clone
from embodied_rm.rl.cloning.ra_bc import progress_gains, progress_weights
from embodied_rm.rl.learner.demo_pairs import make_demo_pairs
from embodied_rm.types import Episode

CURVES = st.lists(arrays(np.float32, st.integers(2, 30), elements=st.floats(0, 1, width=32)), min_size=1, max_size=4)
SMALL = CloneConfig(num_demonstrations=2, steps=400, hidden_sizes=(32,), learning_rate=3e-3)


@given(CURVES, st.integers(1, 10))
def test_what_loses_counts_nothing_what_gains_counts_fully_and_the_rest_lies_between(curves, horizon):
    for curve, weight in zip(curves, progress_weights(curves, horizon), strict=True):
        gain = progress_gains(curve, horizon)
        assert ((weight >= 0) & (weight <= 1)).all()
        assert (weight[gain < 0] == 0).all() and (weight[gain > 0.01] == 1).all()


def test_a_known_answer():
    """Gains of two frames: 0.5, 0, -0.5, 0: mean 0, standard deviation sqrt(0.125)."""
    curve = np.array([0.0, 0.5, 0.5, 0.5, 0.0, 0.0], np.float32)
    assert progress_gains(curve, 1).tolist() == [0.5, 0, 0, -0.5, 0, 0]
    (weight,) = progress_weights([curve], 1)
    mean, std = 0.0, np.std([0.5, 0, 0, -0.5, 0, 0])
    assert weight == pytest.approx([1, *[(0 - (mean - 2 * std)) / (4 * std)] * 2, 0, *[0.5] * 2], abs=1e-5)


def recorded(action: float, name: str) -> Episode:
    state = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    frames = {"front": np.zeros((50, 1, 1, 3), np.uint8)}
    return Episode(name=name, views=frames, instruction="", fps=20, state=state,
                   action=np.full((50, 1), action, np.float32))  # fmt: skip


def test_what_weighs_nothing_is_not_imitated():
    """Two who disagree in every state: only the one that counts is followed; of both the mean."""
    both = [recorded(0.5, "good"), recorded(-0.5, "bad")]
    state = both[0].state
    assert state is not None
    policy, fit = clone(make_demo_pairs(both, [np.ones(50, np.float32), np.zeros(50, np.float32)]), SMALL)
    assert np.allclose(policy.act(state), 0.5, atol=0.05) and fit.transitions == 50
    plain, all_of_them = clone(make_demo_pairs(both), SMALL)
    assert np.allclose(plain.act(state), 0.0, atol=0.1) and all_of_them.transitions == 100


def test_demonstrations_that_all_weigh_nothing_are_refused():
    with pytest.raises(DataError, match="no moment"):
        make_demo_pairs([recorded(0.5, "a"), recorded(0.5, "b")], [np.zeros(50, np.float32)] * 2)
