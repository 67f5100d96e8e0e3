"""ProcVLM labels: progress rises with image change, and is constant in unfinished subtasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from annotated_episodes import abandoned, demonstrations, episode
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.labels.piecewise_progress import subtask_spans
from embodied_rm.labels.visual_change import budget_levels, frame_changes, label, perceptual_hashes


def scenes(images: list[int]) -> np.ndarray:
    """Return images of numbered scenes, uint8 [T, 16, 16, 3]."""
    return np.stack([np.random.default_rng(i).integers(0, 256, (16, 16, 3), np.uint8) for i in images])


@given(st.lists(demonstrations(), min_size=1, max_size=3))
def test_progress_of_a_success_rises_from_0_to_1(episodes):
    for success, targets in zip(episodes, label(episodes), strict=True):
        first, last = success.subtasks[0].start, success.subtasks[-1].end
        assert (np.diff(targets.progress[first:last]) > 0).all() and (np.diff(targets.progress) >= 0).all()
        assert targets.progress[-1] == 1 and targets.progress_known.all()


@given(demonstrations())
def test_progress_of_an_unfinished_subtask_is_constant(demonstration):
    failure = label([demonstration, abandoned(demonstration)])[1]
    assert len(set(failure.progress[demonstration.subtasks[-1].start :].tolist())) == 1
    assert failure.progress_known.all() and not failure.success.any() and failure.progress[-1] < 1


def test_progress_grows_with_image_change():
    """Three scenes in nine frames: a scene change adds more progress than no change."""
    video = replace(episode([0, 9], 9), views={"front": scenes([0, 0, 0, 0, 1, 1, 1, 2, 2])})
    rise = np.diff(label([video])[0].progress)
    assert rise[[3, 6]].min() > 1.5 * np.delete(rise, [3, 6]).max()
    assert np.allclose(np.delete(rise, [3, 6]), rise[0], atol=1e-6)


def test_frame_changes_are_in_range():
    moving = episode([0, 9], 9)
    assert ((frame_changes(moving) >= 0.5) & (frame_changes(moving) <= 1.5)).all()
    still = replace(moving, views={"front": np.repeat(scenes([3]), 9, axis=0)})
    assert (frame_changes(still)[1:] == 0.5).all()


def test_perceptual_hash_ignores_brightness():
    image = scenes([0]) // 2
    assert (perceptual_hashes(image) == perceptual_hashes(image + 60)).all()
    assert 0.3 < (perceptual_hashes(image) == perceptual_hashes(scenes([1]))).mean() < 0.7
    assert (perceptual_hashes(image) != perceptual_hashes(255 - image)).mean() > 0.9


@given(demonstrations())
def test_budgets_sum_to_1_and_are_bounded(demonstration):
    spans = subtask_spans(demonstration, [subtask.name for subtask in demonstration.subtasks])
    budgets = np.diff(budget_levels(spans, len(spans), len(demonstration)))
    assert budgets.sum() == pytest.approx(1) and budgets.max() / budgets.min() <= 5 / 3 + 1e-9
