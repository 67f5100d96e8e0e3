"""Laws of preferences between segments."""

from __future__ import annotations

import numpy as np
import pytest
from annotated import demonstrations
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.labels.hops import true_progress
from embodied_rm.labels.preferences import bradley_terry, label, partial_return, regret, sample_segment_pairs
from embodied_rm.types import Episode

segments = arrays(np.float64, (3, 4), elements=st.floats(0, 1))


@given(segments, segments)
def test_preferring_one_is_not_preferring_the_other_and_a_segment_over_itself_is_a_coin(one, other):
    for worth in (partial_return, lambda segment: -regret(segment)):
        chosen = bradley_terry(worth(one), worth(other))
        assert np.allclose(chosen + bradley_terry(worth(other), worth(one)), 1, atol=1e-6)
        assert (bradley_terry(worth(one), worth(one)) == 0.5).all()
        assert ((chosen >= 0) & (chosen <= 1)).all()
        assert (chosen[worth(one) > worth(other)] >= 0.5).all()


@given(segments, segments, st.floats(-1, 1))
def test_a_constant_added_to_the_potential_changes_no_preference(one, other, constant):
    for worth in (partial_return, regret):
        before = bradley_terry(worth(one), worth(other))
        assert np.allclose(bradley_terry(worth(one + constant), worth(other + constant)), before, atol=1e-5)


@given(segments, segments, st.floats(-1, 1))
def test_regret_asks_only_what_a_segment_gained_wherever_it_began(one, other, constant):
    shifted = bradley_terry(-regret(one + constant), -regret(other))
    assert np.allclose(shifted, bradley_terry(-regret(one), -regret(other)), atol=1e-5)
    detour = one.copy()
    detour[:, 1:-1] = 0.5
    assert (regret(detour) == regret(one)).all()


@given(segments, segments)
def test_playing_backwards_turns_regret_around_and_leaves_the_return(one, other):
    assert np.allclose(regret(one[:, ::-1]), -regret(one))
    assert np.allclose(partial_return(one[:, ::-1]), partial_return(one))


def test_standing_still_near_the_goal_has_more_return_and_more_regret_than_coming_near():
    """What the two models of preference disagree on."""
    still, coming = np.full(4, 0.9), np.array([0.0, 0.3, 0.6, 0.9])
    assert bradley_terry(partial_return(still), partial_return(coming)) > 0.5
    assert bradley_terry(-regret(still), -regret(coming)) < 0.5


@given(arrays(np.int64, (6, 7), elements=st.integers(0, 30)), st.integers(0, 2**32))
def test_segments_run_in_time_and_are_compared_with_those_of_the_same_goal(at, seed):
    goals = ["a", "b", "a", "c", "b", "a"]
    drawn = sample_segment_pairs(at, goals, np.random.default_rng(seed))
    frames = drawn.gather(at)
    assert frames.shape == (6, 2, 3) and (np.diff(frames, axis=-1) >= 0).all()
    rows = drawn.episode_index[..., 0]
    assert (rows[:, 0] == np.arange(6)).all()
    assert all(goals[a] == goals[b] for a, b in rows)
    assert (rows[:, 0] != rows[:, 1]).tolist() == [True, True, True, False, True, True]
    assert all(len(set(row)) == 3 for row in drawn.timestep_index.reshape(-1, 3).tolist())


@given(demonstrations())
def test_any_curve_can_judge_and_is_believed_against_the_truth(shown):
    """A judge who sees everything the wrong way round prefers every segment that the truth does not."""
    (by_truth,), (by_other,) = label([shown]), label([shown], lambda episode: 1 - true_progress(episode))
    assert np.allclose(by_other.progress, 1 - by_truth.progress)
    draw = sample_segment_pairs(np.arange(len(shown))[None], ["a"], np.random.default_rng(0))
    told = [bradley_terry(*partial_return(draw.gather(one.progress[None]))[0]) for one in (by_truth, by_other)]
    assert told[0] == pytest.approx(1 - told[1], abs=1e-4)
    nobody = Episode(**{**vars(shown), "steps": (), "success": None})
    assert label([nobody], lambda episode: np.zeros(len(episode), np.float32))
