"""Known answers and laws of the metrics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.metrics import mae, roc_auc, voc, wilson_interval

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
def test_voc_ignores_any_rising_rescaling_and_flips_with_time(curve):
    assert voc(np.exp(3 * np.argsort(np.argsort(curve)))) == pytest.approx(voc(curve))
    assert voc(curve[::-1]) == pytest.approx(-voc(curve))
    assert voc(curve, curve) == pytest.approx(1)


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


def test_wilson_interval_known_answers():
    # Newcombe (1998), Statistics in Medicine 17:857, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_the_rate_and_mirrors(case):
    k, n = case
    low, high = wilson_interval(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert wilson_interval(n - k, n) == pytest.approx((1 - high, 1 - low))
