"""Metrics of segments, preferences and resolution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.metrics import (
    effective_resolution,
    match_segments,
    preference_credit,
    preferred_pairs,
    segmentation_f1,
    terciles,
)

labels = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@given(labels)
def test_true_labels_match_all_segments_and_unknown_ones_none(true):
    number = 1 + np.count_nonzero(np.diff(true))
    assert match_segments(true, true) == (number, 0, 0)
    assert match_segments(np.full(len(true), 9), true) == (0, 1, number)


@given(labels, st.data())
def test_segment_counts_add_up(true, data):
    predicted = data.draw(st.lists(st.integers(0, 3), min_size=len(true), max_size=len(true)))
    matched, spurious, missed = match_segments(predicted, true)
    assert matched + missed == 1 + np.count_nonzero(np.diff(true))
    assert matched + spurious == 1 + np.count_nonzero(np.diff(predicted))


def test_segments_match_from_half_an_overlap_and_once():
    true = [0] * 10 + [1] * 10
    assert match_segments([0] * 15 + [1] * 5, true) == (2, 0, 0), "10 of 15 and 5 of 10"
    assert match_segments([0] * 16 + [1] * 4, true) == (1, 1, 1), "4 of 10"
    # Over-segmentation costs, unlike in subtask accuracy: only the largest piece matches.
    assert match_segments([0] * 6 + [2] + [0] * 3 + [1] * 10, true) == (2, 2, 0)
    assert match_segments([], []) == (0, 0, 0)


def test_f1_pools_the_segments_of_all_videos():
    assert segmentation_f1([(2, 0, 0), (2, 0, 0)]) == 1
    assert segmentation_f1([(0, 3, 2)]) == 0
    assert segmentation_f1([(3, 1, 0), (0, 1, 1)]) == pytest.approx(6 / 9)
    assert math.isnan(segmentation_f1([])) and math.isnan(segmentation_f1([(0, 0, 0)]))


def test_pairs_are_within_a_group_and_differ_by_the_margin():
    pairs = preferred_pairs([1.0, 0.5, 0.45, 0.0], ["a", "a", "a", "b"])
    assert pairs.tolist() == [[0, 1], [0, 2]]
    assert preferred_pairs([0.3, 0.2], ["a", "a"]).tolist() == [[0, 1]], "a difference of exactly the margin counts"
    assert preferred_pairs([], []).shape == (0, 2)


def test_preferences_of_perfect_reversed_constant_and_random_scores():
    truth = np.linspace(0, 1, 12)
    pairs = preferred_pairs(truth, ["a"] * 12)
    assert preference_credit(truth, pairs).mean() == 1
    assert preference_credit(-truth, pairs).mean() == 0
    assert preference_credit(np.zeros(12), pairs).mean() == 0.5
    rng = np.random.default_rng(0)
    assert np.mean([preference_credit(rng.permutation(12), pairs).mean() for _ in range(2000)]) == pytest.approx(
        0.5, abs=0.02
    )


def test_terciles():
    assert terciles([5, 1, 9, 2, 7, 3]).tolist() == [1, 0, 2, 0, 2, 1]
    assert terciles([4, 4, 4]).tolist() == [0, 0, 0]
    assert terciles([]).tolist() == []


@given(st.integers(2, 400))
def test_ramp_resolves_two_levels_per_frame(length):
    # Rounding may put two frames into one level, at most one level less.
    assert effective_resolution((np.arange(length) + 0.5) / length) == pytest.approx(math.log2(2 * length), abs=0.35)


def test_resolution_of_constant_reversed_coarse_and_random_curves():
    ramp = np.linspace(0, 1, 100)
    assert effective_resolution(np.full(50, 0.3)) == 1, "one of two levels is half"
    assert effective_resolution(ramp[::-1]) == effective_resolution(ramp)
    coarse = np.round(ramp * 10) / 10
    assert effective_resolution(coarse) == pytest.approx(math.log2(22), abs=0.1), (
        "eleven values visit half of 22 levels"
    )
    assert effective_resolution(np.random.default_rng(0).uniform(size=5000)) == pytest.approx(math.log2(1000))
    assert math.isnan(effective_resolution([0.5]))
