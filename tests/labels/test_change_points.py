"""Subtasks from change points of images and gripper."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from annotated_episodes import abandoned, demonstrations, episode
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.errors import DataError
from embodied_rm.labels.change_points import (
    choose_segment_count,
    coarse_features,
    gripper_key_frames,
    label,
    segment_sequence,
)

short_sequences = arrays(np.float32, st.tuples(st.integers(3, 9), st.integers(1, 2)), elements=st.integers(-9, 9))


def within_squares(features, edges) -> float:
    parts = np.split(features.astype(float), edges)
    return sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts)


@given(short_sequences, st.integers(1, 3))
def test_segmentation_minimizes_variance(features, count):
    edges = segment_sequence(features, count, np.zeros(len(features), bool))
    assert edges[0] == 0 and edges[-1] == len(features) and len(edges) == count + 1
    candidates = combinations(range(1, len(features)), count - 1)
    best = min(within_squares(features, list(candidate)) for candidate in candidates)
    assert within_squares(features, edges[1:-1]) == pytest.approx(best, abs=1e-4)


@given(short_sequences, st.data())
def test_forced_starts_become_edges(features, data):
    forced = np.zeros(len(features), bool)
    forced[data.draw(st.lists(st.integers(1, len(features) - 1), max_size=3))] = True
    edges = segment_sequence(features, int(forced.sum()) + 1, forced)
    assert edges[1:-1] == np.flatnonzero(forced).tolist()


def test_scenes_are_separated_and_counted():
    scene = np.eye(3, dtype=np.float32)
    features = np.repeat(scene, [4, 7, 5], axis=0)
    assert choose_segment_count([features, features[2:]]) == 3
    assert segment_sequence(features, 3, np.zeros(16, bool)) == [0, 4, 11, 16]
    assert choose_segment_count([np.zeros((6, 2), np.float32)]) == 1
    assert choose_segment_count([np.zeros((2, 2), np.float32)]) == 1


def test_flickering_or_constant_gripper_has_no_key_frames():
    gripper = np.array([-1] * 6 + [1] * 8 + [-1] + [1] * 5 + [-1] * 2, np.float32)
    assert np.flatnonzero(gripper_key_frames(gripper)).tolist() == [6, 20]
    assert np.flatnonzero(gripper_key_frames(-3 * gripper + 5)).tolist() == [6, 20]
    assert not gripper_key_frames(np.ones(9, np.float32)).any()


def test_gripper_key_frames_are_subtask_boundaries():
    recorded = episode([0, 20], 20)
    action = np.zeros((20, 4), np.float32)
    action[7:, -1] = 1
    targets = label([replace(recorded, views={"front": np.zeros((20, 8, 8, 3), np.uint8)}, action=action)])[0]
    assert targets.progress[7] == pytest.approx(0.5)


@settings(max_examples=30)
@given(demonstrations())
def test_demonstration_rises_from_0_to_1_and_failure_has_outcome_only(demonstration):
    success, failure = label([replace(demonstration, subtasks=()), replace(abandoned(demonstration), subtasks=())])
    assert success.progress[0] == 0 and success.progress[-1] == 1 and (np.diff(success.progress) > 0).all()
    assert not failure.progress_known.any()
    for targets, done in ((success, True), (failure, False)):
        assert (
            np.flatnonzero(targets.success_known).tolist() == [len(demonstration) - 1] and targets.success[-1] == done
        )


def test_given_features_replace_images():
    demonstration = episode([0, 20], 20)
    features = np.repeat(np.eye(4, dtype=np.float32), 5, axis=0)
    assert label([demonstration], [features])[0].progress[[5, 10, 15]] == pytest.approx([0.25, 0.5, 0.75])
    assert coarse_features(demonstration).shape == (20, 2 * 8 * 8 * 3)


def test_failures_alone_are_rejected():
    with pytest.raises(DataError, match=r"'change_points' needs successes.*column success"):
        label([abandoned(episode([0, 9], 9))])
