"""Steps are found where the images change and the gripper moves, exactly."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from annotated import demonstrations, episode, given_up
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.errors import DataError
from embodied_rm.labels.change_point_subtasks import coarse_features, gripper_key_frames, label
from embodied_rm.labels.change_points import choose_segment_count, segment_sequence

few = arrays(np.float32, st.tuples(st.integers(3, 9), st.integers(1, 2)), elements=st.integers(-9, 9))


def spread_of(features, edges) -> float:
    parts = np.split(features.astype(float), edges)
    return sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts)


@given(few, st.integers(1, 3))
def test_no_other_edges_leave_less_variance(features, count):
    edges = segment_sequence(features, count, np.zeros(len(features), bool))
    assert edges[0] == 0 and edges[-1] == len(features) and len(edges) == count + 1
    every = combinations(range(1, len(features)), count - 1)
    best = min(spread_of(features, list(others)) for others in every)
    assert spread_of(features, edges[1:-1]) == pytest.approx(best, abs=1e-4)


@given(few, st.data())
def test_forced_edges_are_edges(features, data):
    forced = np.zeros(len(features), bool)
    forced[data.draw(st.lists(st.integers(1, len(features) - 1), max_size=3))] = True
    edges = segment_sequence(features, int(forced.sum()) + 1, forced)
    assert edges[1:-1] == np.flatnonzero(forced).tolist()


def test_scenes_are_told_apart_and_counted():
    scene = np.eye(3, dtype=np.float32)
    features = np.repeat(scene, [4, 7, 5], axis=0)
    assert choose_segment_count([features, features[2:]]) == 3
    assert segment_sequence(features, 3, np.zeros(16, bool)) == [0, 4, 11, 16]
    assert choose_segment_count([np.zeros((6, 2), np.float32)]) == 1
    assert choose_segment_count([np.zeros((2, 2), np.float32)]) == 1


def test_a_gripper_that_flickers_or_never_moves_has_no_key_frames():
    grip = np.array([-1] * 6 + [1] * 8 + [-1] + [1] * 5 + [-1] * 2, np.float32)
    assert np.flatnonzero(gripper_key_frames(grip)).tolist() == [6, 20]
    assert np.flatnonzero(gripper_key_frames(-3 * grip + 5)).tolist() == [6, 20]
    assert not gripper_key_frames(np.ones(9, np.float32)).any()


def test_recorded_key_frames_are_step_boundaries():
    shown = episode([0, 20], 20)
    action = np.zeros((20, 4), np.float32)
    action[7:, -1] = 1
    found = label([replace(shown, views={"front": np.zeros((20, 8, 8, 3), np.uint8)}, action=action)])[0]
    assert found.progress[7] == pytest.approx(0.5)


@settings(max_examples=30)
@given(demonstrations())
def test_a_demonstration_rises_from_0_to_1_and_a_failure_tells_only_that_it_failed(shown):
    success, failure = label([replace(shown, subtasks=()), replace(given_up(shown), subtasks=())])
    assert success.progress[0] == 0 and success.progress[-1] == 1 and (np.diff(success.progress) > 0).all()
    assert not failure.progress_known.any()
    for targets, done in ((success, True), (failure, False)):
        assert np.flatnonzero(targets.success_known).tolist() == [len(shown) - 1] and targets.success[-1] == done


def test_features_of_any_encoder_take_the_place_of_images():
    shown = episode([0, 20], 20)
    features = np.repeat(np.eye(4, dtype=np.float32), 5, axis=0)
    assert label([shown], [features])[0].progress[[5, 10, 15]] == pytest.approx([0.25, 0.5, 0.75])
    assert coarse_features(shown).shape == (20, 2 * 8 * 8 * 3)


def test_failures_alone_are_refused():
    with pytest.raises(DataError, match=r"'discovered' learn from successes.*column success"):
        label([given_up(episode([0, 9], 9))])
