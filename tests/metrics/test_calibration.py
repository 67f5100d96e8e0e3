"""Calibration metrics on distributions with known calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.metrics import conformal_scale, coverage, expected_calibration_error, prediction_interval
from embodied_rm.metrics.calibration import MIN_UNCERTAINTY

seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def test_calibrated_probabilities_have_no_calibration_error():
    rng = np.random.default_rng(0)
    predicted = rng.uniform(size=200_000)
    assert expected_calibration_error(predicted, rng.uniform(size=predicted.size) < predicted) < 0.01
    # Inverted, the error is |1 - 2p|, 1/2 on average (0.5 with bins of 0.1).
    assert expected_calibration_error(1 - predicted, rng.uniform(size=predicted.size) < predicted) == pytest.approx(
        0.5, abs=0.01
    )


def test_calibration_errors_of_small_examples():
    truth = np.array([True, True, False, False])
    assert expected_calibration_error(truth.astype(float), truth) == 0
    assert expected_calibration_error((~truth).astype(float), truth) == 1
    assert expected_calibration_error(np.full(4, 0.5), truth) == 0
    assert expected_calibration_error(np.full(4, 0.8), truth) == pytest.approx(0.3)
    assert math.isnan(expected_calibration_error([], np.zeros(0, bool)))


@given(seeds, st.sampled_from(["normal", "laplace", "uniform"]), st.floats(0.5, 0.95))
def test_conformal_intervals_cover_new_data_of_any_distribution(rng, distribution, target):
    uncertainty = rng.uniform(0.01, 0.5, 40_000)
    error = getattr(rng, distribution)(size=40_000) * (uncertainty + MIN_UNCERTAINTY)
    scale = conformal_scale(error[::2], uncertainty[::2], target)
    assert coverage(error[1::2], uncertainty[1::2], scale) == pytest.approx(target, abs=0.02)


def test_scale_of_normal_errors_is_the_normal_quantile():
    rng = np.random.default_rng(1)
    uncertainty = rng.uniform(0, 1, 200_000)
    error = rng.normal(size=uncertainty.size) * (uncertainty + MIN_UNCERTAINTY)
    assert conformal_scale(error, uncertainty) == pytest.approx(1.645, abs=0.02)


def test_too_few_errors_give_an_infinite_scale():
    assert conformal_scale(np.ones(8), np.ones(8)) == math.inf, "8 errors guarantee a coverage of at most 8/9"
    assert conformal_scale(np.ones(9), np.ones(9)) == pytest.approx(1 / (1 + MIN_UNCERTAINTY))
    assert math.isnan(coverage([], [], 1.0))
    assert coverage([0.0, 1.0], [0.0, 0.0], 1.0) == 0.5


def test_intervals_have_the_target_coverage_and_stay_in_range():
    rng = np.random.default_rng(0)
    uncertainty = rng.uniform(0, 0.2, 20_000).astype(np.float32)
    truth = rng.uniform(0, 1, uncertainty.size)
    progress = np.clip(truth + rng.normal(size=uncertainty.size) * (uncertainty + MIN_UNCERTAINTY), 0, 1).astype(
        np.float32
    )
    low, high = prediction_interval(progress, uncertainty, conformal_scale(progress - truth, uncertainty))
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.9, abs=0.01)
    assert (low >= 0).all() and (high <= 1).all() and (low <= progress).all() and (progress <= high).all()
