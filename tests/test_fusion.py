"""Fusion of exact hops gives the true progress; fusion of any hops stays in range."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.labels.hops import hop
from embodied_rm.models.potential_fusion import (
    FIRST_POTENTIAL,
    FUSION_KINDS,
    GOAL_POTENTIAL,
    HOP_ERROR,
    apply_hop,
    fuse,
    fuse_consistent,
    fuse_inverse_variance,
    fuse_mean,
    hop_weight,
    propagate_error,
    total_uncertainty,
)

unit_floats = st.floats(0, 1, width=32)
hops = st.floats(-1, 1, width=32)
progress_curves = arrays(np.float32, (9, 4), elements=unit_floats)


def perspectives(previous, incremental, forward, backward=None):
    potentials = {"incremental": apply_hop(previous, incremental), "forward": apply_hop(FIRST_POTENTIAL, forward)}
    return potentials if backward is None else {**potentials, "backward": apply_hop(GOAL_POTENTIAL, backward)}


@pytest.mark.parametrize("goal", [False, True])
@pytest.mark.parametrize(
    "fuse",
    [
        lambda _, potentials: fuse_mean(potentials),
        fuse_consistent,
        lambda _, potentials: fuse_inverse_variance(potentials, 0.3),
    ],
)
@given(true_progress=progress_curves)
def test_exact_hops_give_the_true_progress(fuse, goal, true_progress):
    true_progress[0] = 0
    potential = true_progress[0]
    for previous, current in pairwise(true_progress):
        potentials = perspectives(potential, hop(previous, current), hop(0, current), hop(1, current) if goal else None)
        potential = fuse(potential, potentials)
        assert np.allclose(potential, current, atol=1e-4)
        assert np.allclose(total_uncertainty(np.zeros_like(true_progress), potentials), 0, atol=1e-4)


@given(unit_floats, hops, hops, st.none() | hops)
def test_potential_stays_in_range_for_any_hops(previous, incremental, forward, backward):
    potentials = perspectives(previous, incremental, forward, backward)
    for value in (*potentials.values(), fuse_mean(potentials), fuse_consistent(previous, potentials)):
        assert -1e-6 <= value <= 1 + 1e-6
    assert total_uncertainty(np.float32(0.1), potentials) >= 0.1


@given(unit_floats, hops, hops)
def test_consistent_fusion_without_goal_is_the_mean(previous, incremental, forward):
    potentials = perspectives(previous, incremental, forward)
    assert fuse_consistent(previous, potentials) == pytest.approx(fuse_mean(potentials), abs=1e-6)


def test_update_shrinks_with_anchor_disagreement():
    moves = []
    for gap in (0.0, 0.1, 0.2, 0.4):
        potentials = perspectives(np.float32(0.2), 0.0, 0.6 - gap / 2, 0.6 + gap / 2 - 1)
        moves.append(float(fuse_consistent(0.2, potentials)) - 0.2)
    assert moves == sorted(moves, reverse=True) and moves[-1] < moves[0] / 2


@given(unit_floats, hops, hops, hops, unit_floats)
def test_single_perspectives_and_bounds_of_every_fusion(previous, incremental, forward, backward, reference_potential):
    potentials = {
        **perspectives(previous, incremental, forward, backward),
        "reference": np.float32(reference_potential),
    }
    for kind in FUSION_KINDS:
        assert 0 <= fuse(kind, previous, potentials) <= 1
    assert all(fuse(name, previous, potentials) == np.clip(value, 0, 1) for name, value in potentials.items())
    assert min(potentials.values()) - 1e-6 <= fuse("mean", previous, potentials) <= max(potentials.values()) + 1e-6


def test_known_values():
    """From 0.5: half of the remaining progress gives 0.75, the first frame 0.25, the goal minus a tenth 0.9."""
    previous = np.float32(0.5)
    potentials = perspectives(previous, 0.5, 0.25, -0.1)
    expected = {"incremental": 0.75, "forward": 0.25, "backward": 0.9, "min": 0.25, "mean": 1.9 / 3}
    assert {name: float(fuse(name, previous, potentials)) for name in expected} == pytest.approx(expected, abs=1e-6)
    anchored = (0.25 + 0.9) / 2
    assert float(fuse("inverse_variance", previous, potentials, 0.2)) == pytest.approx(
        0.2 * 0.75 + 0.8 * anchored, abs=1e-6
    )


errors = st.floats(0, 0.5, width=32)


@given(errors, hops, errors)
def test_smaller_error_has_the_larger_weight(previous_error, hop, error):
    weight = hop_weight(np.float32(previous_error), np.float32(hop), np.float32(error))
    hop_error = (1 - abs(hop)) * previous_error + HOP_ERROR
    assert (0 <= weight <= 1 and (weight > 0.5) == (error > hop_error)) or abs(error - hop_error) < 1e-6


def test_inverse_variance_weight_minimizes_the_error():
    rng = np.random.default_rng(0)
    carried, error = 0.05 - HOP_ERROR, 0.1
    potentials = {"incremental": rng.normal(0.5, 0.05, 100_000), "forward": rng.normal(0.5, 0.1, 100_000)}
    weight = hop_weight(np.float32(carried), np.float32(0), np.float32(error))
    assert weight == pytest.approx(0.8, abs=1e-6), "twice the error has a quarter of the weight"
    errors_by_weight = {w: float(np.std(fuse_inverse_variance(potentials, w))) for w in (0.0, 0.5, float(weight), 1.0)}
    assert min(errors_by_weight, key=lambda w: errors_by_weight[w]) == float(weight)


def test_uncertainty_is_the_root_of_summed_squares_per_row():
    potentials = {"incremental": np.float32([0.0, 0.5]), "forward": np.float32([1.0, 0.5])}
    assert total_uncertainty(np.float32([1.2, 0.125]), potentials).tolist() == pytest.approx([1.3, 0.125])


@given(st.floats(0, 0.875, width=32), hops, st.floats(0, 0.125, width=32))
def test_carried_error_shrinks_with_the_hop(previous, hop, error):
    difference = apply_hop(previous + error, hop) - apply_hop(previous, hop)
    assert 2 * propagate_error(np.float32(error), np.float32(hop), np.float32(0)) == pytest.approx(difference, abs=1e-5)
