"""Calibration against distributions whose calibration is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.metrics import conformal_scale, coverage, expected_calibration_error, prediction_interval
from embodied_rm.metrics.calibration import MIN_UNCERTAINTY

seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def test_what_comes_true_as_often_as_said_has_no_calibration_error():
    rng = np.random.default_rng(0)
    said = rng.uniform(size=200_000)
    assert expected_calibration_error(said, rng.uniform(size=said.size) < said) < 0.01
    # Said the other way round it is wrong by |1 - 2p|, 1/2 on average (0.5 by bins of 0.1).
    assert expected_calibration_error(1 - said, rng.uniform(size=said.size) < said) == pytest.approx(0.5, abs=0.01)


def test_known_calibration_errors():
    truth = np.array([True, True, False, False])
    assert expected_calibration_error(truth.astype(float), truth) == 0
    assert expected_calibration_error((~truth).astype(float), truth) == 1
    assert expected_calibration_error(np.full(4, 0.5), truth) == 0
    assert expected_calibration_error(np.full(4, 0.8), truth) == pytest.approx(0.3)
    assert math.isnan(expected_calibration_error([], np.zeros(0, bool)))


@given(seeds, st.sampled_from(["normal", "laplace", "uniform"]), st.floats(0.5, 0.95))
def test_conformal_intervals_cover_new_data_of_any_distribution(rng, law, share):
    spread = rng.uniform(0.01, 0.5, 40_000)
    error = getattr(rng, law)(size=40_000) * (spread + MIN_UNCERTAINTY)
    scale = conformal_scale(error[::2], spread[::2], share)
    assert coverage(error[1::2], spread[1::2], scale) == pytest.approx(share, abs=0.02)


def test_the_scale_of_normal_errors_is_the_normal_quantile():
    rng = np.random.default_rng(1)
    spread = rng.uniform(0, 1, 200_000)
    error = rng.normal(size=spread.size) * (spread + MIN_UNCERTAINTY)
    assert conformal_scale(error, spread) == pytest.approx(1.645, abs=0.02)


def test_too_few_errors_promise_nothing():
    assert conformal_scale(np.ones(8), np.ones(8)) == math.inf, "of 9 points at most 8/9 can be promised"
    assert conformal_scale(np.ones(9), np.ones(9)) == pytest.approx(1 / (1 + MIN_UNCERTAINTY))
    assert math.isnan(coverage([], [], 1.0))
    assert coverage([0.0, 1.0], [0.0, 0.0], 1.0) == 0.5


def test_an_interval_covers_what_its_scale_promises_and_stays_in_range():
    rng = np.random.default_rng(0)
    spread = rng.uniform(0, 0.2, 20_000).astype(np.float32)
    truth = rng.uniform(0, 1, spread.size)
    value = np.clip(truth + rng.normal(size=spread.size) * (spread + MIN_UNCERTAINTY), 0, 1).astype(np.float32)
    low, high = prediction_interval(value, spread, conformal_scale(value - truth, spread))
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.9, abs=0.01)
    assert (low >= 0).all() and (high <= 1).all() and (low <= value).all() and (value <= high).all()
