"""The hidden Markov model along demonstrations: laws of probability, and what the order of a video is worth."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_rm.models.in_context.alignment import (
    advance_coverage,
    keyframe_indices,
    mean_pairwise_distance,
    neighborhood_belief,
    transition_probs,
    update_belief,
)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4))
@settings(deadline=None)
def test_transitions_are_probabilities_and_reach_every_keyframe(lengths):
    probs = transition_probs(lengths)
    torch.testing.assert_close(probs.sum(dim=1), torch.ones(sum(lengths)))
    assert (probs > 0).all()


def test_transitions_prefer_no_direction():
    probs = transition_probs([9])
    torch.testing.assert_close(probs, probs.flip(0, 1))


def test_belief_follows_bayes_rule():
    predicted, likelihood = torch.tensor([[0.2, 0.3, 0.5]]), torch.tensor([[0.9, 0.5, 0.1]])
    joint = predicted * likelihood
    torch.testing.assert_close(update_belief(predicted, likelihood.log()), joint / joint.sum())


def test_a_demonstration_that_stands_still_between_has_no_keyframes_there():
    position = torch.tensor([0.0, 1, 2, 2, 2, 2, 3, 4])
    distances = (position[:, None] - position[None]).abs()
    assert keyframe_indices(distances, 0.5) == [0, 1, 2, 6, 7]
    assert keyframe_indices(distances, 10.0) == [0]


def test_mean_pairwise_distance_leaves_out_the_diagonal():
    distances = torch.tensor([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    assert mean_pairwise_distance(distances).item() == pytest.approx(2)


def test_the_neighborhood_ends_with_its_demonstration():
    belief = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    torch.testing.assert_close(neighborhood_belief(belief, [2, 2]), torch.tensor([[0.3, 0.3, 0.7, 0.7]]))


def walk(order: list[int], num_keyframes: int) -> float:
    coverage = torch.zeros(1, num_keyframes)
    for keyframe in order:
        belief = torch.zeros(1, num_keyframes)
        belief[0, keyframe] = 1
        coverage = advance_coverage(coverage, belief, [num_keyframes])
    return coverage.max().item()


def test_only_the_way_in_order_is_covered():
    forward = list(range(20))
    assert walk(forward, 20) == pytest.approx(1)
    assert walk(forward[:10], 20) == pytest.approx(0.5)
    assert walk(forward[::-1], 20) <= 0.15
    assert walk([19] * 50, 20) <= 0.11


def test_a_detour_covers_nothing_new_and_loses_nothing():
    assert walk([*range(10), *range(9, 4, -1), *range(5, 20)], 20) == pytest.approx(walk(list(range(20)), 20))


@given(st.lists(st.integers(0, 7), min_size=1, max_size=30))
@settings(deadline=None)
def test_coverage_never_falls_and_is_a_fraction(order):
    values = [walk(order[: n + 1], 8) for n in range(len(order))]
    assert all(a <= b for a, b in pairwise(values))
    assert 0 < values[-1] <= 1
