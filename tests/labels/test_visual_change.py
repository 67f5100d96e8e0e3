"""Laws of ProcVLM's labels: where images change, progress rises; where the task is not getting done, it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from annotated import demonstrations, episode, given_up
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.labels.piecewise_progress import subtask_spans
from embodied_rm.labels.visual_change import budget_levels, frame_changes, label, perceptual_hashes


def scenes(images: list[int]) -> np.ndarray:
    """uint8 [T, 16, 16, 3] of numbered scenes."""
    return np.stack([np.random.default_rng(i).integers(0, 256, (16, 16, 3), np.uint8) for i in images])


@given(st.lists(demonstrations(), min_size=1, max_size=3))
def test_a_success_rises_all_the_time_and_goes_from_0_to_1(shown):
    for one, targets in zip(shown, label(shown), strict=True):
        first, last = one.steps[0].start, one.steps[-1].end
        assert (np.diff(targets.progress[first:last]) > 0).all() and (np.diff(targets.progress) >= 0).all()
        assert targets.progress[-1] == 1 and targets.progress_known.all()


@given(demonstrations())
def test_a_segment_in_which_the_task_is_not_getting_done_is_flat(shown):
    failure = label([shown, given_up(shown)])[1]
    assert len(set(failure.progress[shown.steps[-1].start :].tolist())) == 1
    assert failure.progress_known.all() and not failure.success.any() and failure.progress[-1] < 1


def test_progress_grows_where_the_images_change():
    """Three scenes in nine frames: a change earns three times what a standstill does."""
    still = replace(episode([0, 9], 9), views={"front": scenes([0, 0, 0, 0, 1, 1, 1, 2, 2])})
    rise = np.diff(label([still])[0].progress)
    assert rise[[3, 6]].min() > 1.5 * np.delete(rise, [3, 6]).max()
    assert np.allclose(np.delete(rise, [3, 6]), rise[0], atol=1e-6)


def test_the_change_of_a_frame_lies_between_a_half_and_three_halves():
    shown = episode([0, 9], 9)
    assert ((frame_changes(shown) >= 0.5) & (frame_changes(shown) <= 1.5)).all()
    still = replace(shown, views={"front": np.repeat(scenes([3]), 9, axis=0)})
    assert (frame_changes(still)[1:] == 0.5).all()


def test_a_perceptual_hash_sees_shapes_not_brightness():
    image = scenes([0]) // 2
    assert (perceptual_hashes(image) == perceptual_hashes(image + 60)).all()
    assert 0.3 < (perceptual_hashes(image) == perceptual_hashes(scenes([1]))).mean() < 0.7
    assert (perceptual_hashes(image) != perceptual_hashes(255 - image)).mean() > 0.9


@given(demonstrations())
def test_budgets_rise_from_0_to_1_and_a_long_step_gets_at_most_five_thirds_of_a_short_one(shown):
    parts = subtask_spans(shown, [step.name for step in shown.steps])
    share = np.diff(budget_levels(parts, len(parts), len(shown)))
    assert share.sum() == pytest.approx(1) and share.max() / share.min() <= 5 / 3 + 1e-9
