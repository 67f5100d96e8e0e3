"""Tests of reward-aligned cloning: frames that gain progress are imitated, others are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.errors import DataError
from embodied_rm.rl.cloning.bc import CloneConfig, clone
from embodied_rm.rl.learner.demo_pairs import make_demo_pairs, progress_gains, progress_weights
from embodied_rm.types import Episode

CURVES = st.lists(arrays(np.float32, st.integers(2, 30), elements=st.floats(0, 1, width=32)), min_size=1, max_size=4)
SMALL = CloneConfig(num_demonstrations=2, steps=400, hidden_sizes=(32,), learning_rate=3e-3)


@given(CURVES, st.integers(1, 10))
def test_weights_are_0_for_losses_and_1_for_gains(curves, horizon):
    for curve, weight in zip(curves, progress_weights(curves, horizon), strict=True):
        gain = progress_gains(curve, horizon)
        assert ((weight >= 0) & (weight <= 1)).all()
        assert (weight[gain < 0] == 0).all() and (weight[gain > 0.01] == 1).all()


def test_known_weights():
    """Gains of two frames: 0.5, 0, -0.5, 0: mean 0, standard deviation sqrt(0.125)."""
    curve = np.array([0.0, 0.5, 0.5, 0.5, 0.0, 0.0], np.float32)
    assert progress_gains(curve, 1).tolist() == [0.5, 0, 0, -0.5, 0, 0]
    (weight,) = progress_weights([curve], 1)
    mean, std = 0.0, np.std([0.5, 0, 0, -0.5, 0, 0])
    assert weight == pytest.approx([1, *[(0 - (mean - 2 * std)) / (4 * std)] * 2, 0, *[0.5] * 2], abs=1e-5)


def make_episode(action: float, name: str) -> Episode:
    state = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    frames = {"front": np.zeros((50, 1, 1, 3), np.uint8)}
    return Episode(
        name=name, views=frames, instruction="", fps=20, state=state, action=np.full((50, 1), action, np.float32)
    )


def test_frames_of_weight_0_are_not_imitated():
    """Two demonstrations disagree in all states: the policy follows the weighted one, or the mean of both."""
    both = [make_episode(0.5, "good"), make_episode(-0.5, "bad")]
    state = both[0].state
    assert state is not None
    policy, fit = clone(make_demo_pairs(both, [np.ones(50, np.float32), np.zeros(50, np.float32)]), SMALL)
    assert np.allclose(policy.act(state), 0.5, atol=0.05) and fit.transitions == 50
    plain, all_of_them = clone(make_demo_pairs(both), SMALL)
    assert np.allclose(plain.act(state), 0.0, atol=0.1) and all_of_them.transitions == 100


def test_demonstrations_without_weight_raise():
    with pytest.raises(DataError, match="no frame"):
        make_demo_pairs([make_episode(0.5, "a"), make_episode(0.5, "b")], [np.zeros(50, np.float32)] * 2)
