"""Preferences between segments."""

from __future__ import annotations

import numpy as np
import pytest
from annotated_episodes import demonstrations
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.labels.preferences import bradley_terry, label, partial_return, regret, sample_segment_pairs
from embodied_rm.labels.true_progress import true_progress
from embodied_rm.types import Episode

segments = arrays(np.float64, (3, 4), elements=st.floats(0, 1))


@given(segments, segments)
def test_preference_probabilities_are_complementary(first, second):
    for value in (partial_return, lambda segment: -regret(segment)):
        probs = bradley_terry(value(first), value(second))
        assert np.allclose(probs + bradley_terry(value(second), value(first)), 1, atol=1e-6)
        assert (bradley_terry(value(first), value(first)) == 0.5).all()
        assert ((probs >= 0) & (probs <= 1)).all()
        assert (probs[value(first) > value(second)] >= 0.5).all()


@given(segments, segments, st.floats(-1, 1))
def test_preferences_ignore_a_constant_offset(first, second, constant):
    for value in (partial_return, regret):
        expected = bradley_terry(value(first), value(second))
        assert np.allclose(bradley_terry(value(first + constant), value(second + constant)), expected, atol=1e-5)


@given(segments, segments, st.floats(-1, 1))
def test_regret_depends_on_the_gain_only(first, second, constant):
    shifted = bradley_terry(-regret(first + constant), -regret(second))
    assert np.allclose(shifted, bradley_terry(-regret(first), -regret(second)), atol=1e-5)
    detour = first.copy()
    detour[:, 1:-1] = 0.5
    assert (regret(detour) == regret(first)).all()


@given(segments, segments)
def test_time_reversal_negates_regret_and_keeps_the_return(first, second):
    assert np.allclose(regret(first[:, ::-1]), -regret(first))
    assert np.allclose(partial_return(first[:, ::-1]), partial_return(first))


def test_return_and_regret_disagree_on_standing_near_the_goal():
    """Standing still near the goal has a higher return and a higher regret than approaching it."""
    still, approaching = np.full(4, 0.9), np.array([0.0, 0.3, 0.6, 0.9])
    assert bradley_terry(partial_return(still), partial_return(approaching)) > 0.5
    assert bradley_terry(-regret(still), -regret(approaching)) < 0.5


@given(arrays(np.int64, (6, 7), elements=st.integers(0, 30)), st.integers(0, 2**32))
def test_segments_are_in_time_order_and_paired_by_goal(frame_indices, seed):
    goals = ["a", "b", "a", "c", "b", "a"]
    pairs = sample_segment_pairs(frame_indices, goals, np.random.default_rng(seed))
    frames = pairs.gather(frame_indices)
    assert frames.shape == (6, 2, 3) and (np.diff(frames, axis=-1) >= 0).all()
    rows = pairs.episode_index[..., 0]
    assert (rows[:, 0] == np.arange(6)).all()
    assert all(goals[a] == goals[b] for a, b in rows)
    assert (rows[:, 0] != rows[:, 1]).tolist() == [True, True, True, False, True, True]
    assert all(len(set(row)) == 3 for row in pairs.timestep_index.reshape(-1, 3).tolist())


@given(demonstrations())
def test_given_progress_function_replaces_the_truth(demonstration):
    """An inverted curve inverts every preference."""
    (truth,), (inverted,) = label([demonstration]), label([demonstration], lambda episode: 1 - true_progress(episode))
    assert np.allclose(inverted.progress, 1 - truth.progress)
    pairs = sample_segment_pairs(np.arange(len(demonstration))[None], ["a"], np.random.default_rng(0))
    probs = [bradley_terry(*partial_return(pairs.gather(t.progress[None]))[0]) for t in (truth, inverted)]
    assert probs[0] == pytest.approx(1 - probs[1], abs=1e-4)
    unannotated = Episode(**{**vars(demonstration), "subtasks": (), "success": None})
    assert label([unannotated], lambda episode: np.zeros(len(episode), np.float32))
