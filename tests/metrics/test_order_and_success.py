"""Metrics of progress curves and success predictions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.metrics import (
    best_threshold,
    break_even_threshold,
    kendall_tau_a,
    mae,
    mcc,
    roc_auc,
    spearman,
    voc,
    voc_f1,
    wilson_interval,
)

curves = arrays(np.float64, st.integers(3, 20), elements=st.floats(0, 1), unique=True)


def test_voc_of_perfect_reversed_and_constant_progress():
    rising = np.linspace(0, 1, 50)
    assert voc(rising) == pytest.approx(1)
    assert voc(rising[::-1]) == pytest.approx(-1)
    assert math.isnan(voc(np.full(50, 0.3)))
    assert math.isnan(voc([0.5]))


def test_voc_counts_ties_by_mid_ranks():
    # ranks of the values: 1.5, 1.5, 3 against 1, 2, 3: Pearson of those = 1.5 / sqrt(1.5 * 2)
    assert voc([0.0, 0.0, 1.0]) == pytest.approx(1.5 / math.sqrt(3))


@given(curves)
def test_voc_ignores_monotonic_rescaling_and_flips_with_time(curve):
    assert voc(np.exp(3 * np.argsort(np.argsort(curve)))) == pytest.approx(voc(curve))
    assert voc(curve[::-1]) == pytest.approx(-voc(curve))
    assert voc(curve, curve) == pytest.approx(1)


def test_voc_f1_is_the_harmonic_mean_of_positive_values():
    assert voc_f1(1, 1) == 1
    assert voc_f1(1, 0.5) == pytest.approx(2 / 3)
    assert voc_f1(1, -1) == voc_f1(-0.9, -0.9) == voc_f1(0, 1) == 0
    assert math.isnan(voc_f1(math.nan, 1)) and math.isnan(voc_f1(1, math.nan))


def test_tau_of_perfect_reversed_constant_and_tied_rankings():
    ranks = np.arange(6)
    assert kendall_tau_a(ranks, ranks) == 1
    assert kendall_tau_a(-ranks, ranks) == -1
    assert kendall_tau_a(np.zeros(6), ranks) == 0
    # Six pairs, one tied in the truth, one in the wrong order.
    assert kendall_tau_a([0, 1, 3, 2], [0, 0, 1, 2]) == pytest.approx((4 - 1) / 6)
    assert math.isnan(kendall_tau_a([1], [1]))


@given(curves, st.randoms(use_true_random=False))
def test_rank_correlations_are_bounded_symmetric_and_odd(curve, random):
    shuffled = list(curve)
    random.shuffle(shuffled)
    for metric in (kendall_tau_a, spearman):
        assert -1 - 1e-9 <= metric(shuffled, curve) <= 1 + 1e-9
        assert metric(shuffled, curve) == pytest.approx(metric(curve, shuffled))
        assert metric(-np.array(shuffled), curve) == pytest.approx(-metric(shuffled, curve))


def test_mae():
    assert mae([0.0, 0.5], [0.5, 0.5]) == pytest.approx(0.25)
    assert math.isnan(mae([], []))


def test_auc_of_separated_swapped_and_tied_scores():
    positive = np.array([True, True, False, False])
    assert roc_auc([0.9, 0.8, 0.2, 0.1], positive) == 1
    assert roc_auc([0.1, 0.2, 0.8, 0.9], positive) == 0
    assert roc_auc([0.5, 0.5, 0.5, 0.5], positive) == 0.5
    assert roc_auc([0.9, 0.4, 0.5, 0.1], positive) == 0.75
    assert math.isnan(roc_auc([0.1, 0.2], np.array([True, True])))


def test_mcc_of_perfect_reversed_constant_and_mixed_predictions():
    truth = np.array([True] * 6 + [False] * 4)
    assert mcc(truth, truth) == pytest.approx(1)
    assert mcc(~truth, truth) == pytest.approx(-1)
    assert math.isnan(mcc(np.ones(10, bool), truth)) and math.isnan(mcc(truth, np.zeros(10, bool)))
    # 4 of 6 true positives, 1 of 4 false positives: (4 * 3 - 1 * 2) / sqrt(5 * 6 * 4 * 5)
    predicted = np.array([True] * 4 + [False] * 2 + [True] + [False] * 3)
    assert mcc(predicted, truth) == pytest.approx(10 / math.sqrt(600))


def test_best_threshold_is_the_middle_between_separable_classes():
    scores = np.float32([0.1, 0.3, 0.7, 0.9])
    assert best_threshold(scores, scores > 0.5) == pytest.approx(0.5)
    assert best_threshold(scores, scores > 0.2) == pytest.approx(0.2)
    # 0.5 and 0.9 both err once; the second gap is wider.
    assert best_threshold([0.4, 0.6, 0.7, 1.1], np.array([False, True, False, True])) == pytest.approx(0.9)


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=20, unique=True), st.data())
def test_at_the_break_even_threshold_as_many_are_predicted_as_are_positive(probabilities, data):
    num_positive = data.draw(st.integers(0, len(probabilities)))
    threshold = break_even_threshold(probabilities, num_positive)
    assert 0 < threshold <= 1 and sum(p >= threshold for p in probabilities) == num_positive


def test_the_break_even_threshold_is_in_the_middle_and_above_0():
    assert break_even_threshold([0.1, 0.6, 0.9, 0.2], 2) == pytest.approx(0.4)
    assert break_even_threshold([0.2], 0) == pytest.approx(0.6)
    assert 0 < break_even_threshold([0.0, 0.0], 1) < 1e-30
    assert break_even_threshold([1.0, 1.0], 0) == 1


def test_best_threshold_has_no_value_for_one_class_or_one_score():
    for scores, positive in (([0.1, 0.2], [True, True]), ([0.1, 0.2], [False, False]), ([0.5, 0.5], [True, False])):
        assert math.isnan(best_threshold(scores, np.array(positive)))
    assert math.isnan(best_threshold([], np.zeros(0, bool)))


def test_best_threshold_separates_neighboring_floats():
    scores = np.array([np.nextafter(np.float32(1), np.float32(0)), 1], np.float32)
    assert (scores >= best_threshold(scores, np.array([False, True]))).tolist() == [False, True]


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=2, max_size=20))
def test_no_threshold_has_a_larger_mcc_than_the_best_one(cases):
    scores, positive = np.float32([score for score, _ in cases]) / 8, np.array([done for _, done in cases])
    best = best_threshold(scores, positive)
    values = [mcc(scores >= threshold, positive) for threshold in np.unique(scores)[1:]]
    if math.isnan(best):
        assert all(math.isnan(value) for value in values)
    else:
        assert mcc(scores >= best, positive) == pytest.approx(max(values))


def test_random_scores_have_chance_values():
    rng, truth = np.random.default_rng(0), np.arange(12)
    scores = rng.uniform(size=(4000, 12))
    positive = truth < 5
    for metric, expected in (
        (lambda score: voc(score), 0.0),
        (lambda score: kendall_tau_a(score, truth), 0.0),
        (lambda score: roc_auc(score, positive), 0.5),
        (lambda score: mcc(score > np.median(score), positive), 0.0),
    ):
        assert np.mean([metric(score) for score in scores]) == pytest.approx(expected, abs=0.02)


def test_wilson_interval_of_published_examples():
    # Newcombe (1998), Statistics in Medicine 17:857, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_contains_the_rate_and_is_symmetric(case):
    k, n = case
    low, high = wilson_interval(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert wilson_interval(n - k, n) == pytest.approx((1 - high, 1 - low))
