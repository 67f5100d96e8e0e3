"""Fusion of perfect hops gives the true progress; fusion of any hops stays in range."""

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

shares = st.floats(0, 1, width=32)
hops = st.floats(-1, 1, width=32)
curves = arrays(np.float32, (9, 4), elements=shares)


def perspectives(previous, incremental, forward, backward=None):
    seen = {"incremental": apply_hop(previous, incremental), "forward": apply_hop(FIRST_POTENTIAL, forward)}
    return seen if backward is None else {**seen, "backward": apply_hop(GOAL_POTENTIAL, backward)}


@pytest.mark.parametrize("goal", [False, True])
@pytest.mark.parametrize(
    "fuse", [lambda _, seen: fuse_mean(seen), fuse_consistent, lambda _, seen: fuse_inverse_variance(seen, 0.3)]
)
@given(truth=curves)
def test_perfect_hops_give_the_true_progress(fuse, goal, truth):
    truth[0] = 0
    phi = truth[0]
    for before, now in pairwise(truth):
        seen = perspectives(phi, hop(before, now), hop(0, now), hop(1, now) if goal else None)
        phi = fuse(phi, seen)
        assert np.allclose(phi, now, atol=1e-4)
        assert np.allclose(total_uncertainty(np.zeros_like(truth), seen), 0, atol=1e-4)


@given(shares, hops, hops, st.none() | hops)
def test_whatever_the_hops_the_potential_stays_in_range(previous, incremental, forward, backward):
    seen = perspectives(previous, incremental, forward, backward)
    for value in (*seen.values(), fuse_mean(seen), fuse_consistent(previous, seen)):
        assert -1e-6 <= value <= 1 + 1e-6
    assert total_uncertainty(np.float32(0.1), seen) >= 0.1


@given(shares, hops, hops)
def test_without_a_goal_consistency_weighting_is_the_plain_mean(previous, incremental, forward):
    seen = perspectives(previous, incremental, forward)
    assert fuse_consistent(previous, seen) == pytest.approx(fuse_mean(seen), abs=1e-6)


def test_the_more_the_anchors_disagree_the_less_the_potential_moves():
    moves = []
    for gap in (0.0, 0.1, 0.2, 0.4):
        seen = perspectives(np.float32(0.2), 0.0, 0.6 - gap / 2, 0.6 + gap / 2 - 1)
        moves.append(float(fuse_consistent(0.2, seen)) - 0.2)
    assert moves == sorted(moves, reverse=True) and moves[-1] < moves[0] / 2


@given(shares, hops, hops, hops, shares)
def test_a_perspective_alone_is_itself_and_every_fusion_lies_among_them(
    previous, incremental, forward, backward, found
):
    seen = {**perspectives(previous, incremental, forward, backward), "reference": np.float32(found)}
    for kind in FUSION_KINDS:
        assert 0 <= fuse(kind, previous, seen) <= 1
    assert all(fuse(name, previous, seen) == np.clip(value, 0, 1) for name, value in seen.items())
    assert min(seen.values()) - 1e-6 <= fuse("mean", previous, seen) <= max(seen.values()) + 1e-6


def test_known_answers_of_a_perspective_and_of_each_fusion():
    """From 0.5: half of what is left is 0.75, from the start 0.25, from the goal a tenth lost is 0.9."""
    previous = np.float32(0.5)
    seen = perspectives(previous, 0.5, 0.25, -0.1)
    known = {"incremental": 0.75, "forward": 0.25, "backward": 0.9, "min": 0.25, "mean": 1.9 / 3}
    assert {name: float(fuse(name, previous, seen)) for name in known} == pytest.approx(known, abs=1e-6)
    anchored = (0.25 + 0.9) / 2
    assert float(fuse("inverse_variance", previous, seen, 0.2)) == pytest.approx(0.2 * 0.75 + 0.8 * anchored, abs=1e-6)


errors = st.floats(0, 0.5, width=32)


@given(errors, hops, errors)
def test_who_errs_less_counts_more(doubt, hop, error):
    share = hop_weight(np.float32(doubt), np.float32(hop), np.float32(error))
    stepped = (1 - abs(hop)) * doubt + HOP_ERROR
    assert (0 <= share <= 1 and (share > 0.5) == (error > stepped)) or abs(error - stepped) < 1e-6


def test_two_unrelated_errors_are_smallest_where_they_are_fused_by_their_squares():
    rng = np.random.default_rng(0)
    carried, error = 0.05 - HOP_ERROR, 0.1
    said = {"incremental": rng.normal(0.5, 0.05, 100_000), "forward": rng.normal(0.5, 0.1, 100_000)}
    share = hop_weight(np.float32(carried), np.float32(0), np.float32(error))
    assert share == pytest.approx(0.8, abs=1e-6), "twice the error counts a quarter"
    spreads = {w: float(np.std(fuse_inverse_variance(said, w))) for w in (0.0, 0.5, float(share), 1.0)}
    assert min(spreads, key=lambda w: spreads[w]) == float(share)


def test_spread_adds_the_squares_of_expected_error_and_standard_deviation_row_by_row():
    seen = {"incremental": np.float32([0.0, 0.5]), "forward": np.float32([1.0, 0.5])}
    assert total_uncertainty(np.float32([1.2, 0.125]), seen).tolist() == pytest.approx([1.3, 0.125])


@given(st.floats(0, 0.875, width=32), hops, st.floats(0, 0.125, width=32))
def test_an_error_of_the_carried_potential_is_carried_as_a_hop_carries_it(previous, hop, error):
    moved = apply_hop(previous + error, hop) - apply_hop(previous, hop)
    assert 2 * propagate_error(np.float32(error), np.float32(hop), np.float32(0)) == pytest.approx(moved, abs=1e-5)
