"""Statistics of learning curves and paired results."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from embodied_rm.metrics import first_iteration_reaching, mean_band, paired_permutation

PAIRS = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=2, max_size=8)


@given(PAIRS)
def test_p_values_of_both_sides_overlap_in_the_observed_mean(pairs):
    first, second = np.array(pairs).T
    p, q = paired_permutation(first, second), paired_permutation(second, first)
    assert 0 < p <= 1 and p + q >= 1
    assert paired_permutation(first + 7, second + 7) == p


def test_p_value_of_five_agreeing_pairs_is_1_in_32():
    assert paired_permutation([1, 2, 3, 4, 5], [2, 4, 6, 8, 10]) == 1 / 32
    assert paired_permutation([1, 1], [1, 1]) == 1
    assert math.isnan(paired_permutation([], [])) and math.isnan(paired_permutation([1], [2]))


def test_many_pairs_are_resampled():
    assert paired_permutation(np.zeros(40), np.ones(40)) == pytest.approx(0, abs=1e-4)
    assert paired_permutation(np.ones(40), np.zeros(40)) == 1


def test_first_iteration_reaching():
    assert first_iteration_reaching([0.1, 0.8, 0.2, 0.9], 0.8) == 2
    assert first_iteration_reaching([0.1, 0.2], 0.8) is None and first_iteration_reaching([], 0.8) is None


def test_mean_band_is_students_interval():
    curves = np.array([[0.2, 0.5], [0.4, 0.5], [0.6, 0.5]])
    mean, low, high = mean_band(curves)
    assert mean == pytest.approx([0.4, 0.5])
    expected = stats.t.interval(0.95, 2, loc=0.4, scale=stats.sem(curves[:, 0]))
    assert (low[0], high[0]) == pytest.approx((max(expected[0], 0), expected[1])) and low[1] == high[1] == 0.5
    assert all(np.array_equal(bound, curves[0].astype(np.float32)) for bound in mean_band(curves[:1]))
