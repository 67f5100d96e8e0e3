"""Robustness to single views: blank views are absent, and success must hold without any one of three views."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.models import progress_net
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.view_fusion import leave_one_out_success, visible_views
from embodied_rm.types import Views

NAMES = ("front", "side", "wrist")
NET = ProgressNet(NetConfig(views=NAMES)).eval()
PROBABILITY = st.floats(0, 1, width=32)


def random_video(rows: int, length: int, names: tuple[str, ...] = NAMES) -> list[Views]:
    rng = np.random.default_rng(rows)
    return [Views(names=names, frames=rng.integers(0, 256, (rows, len(names), 64, 64, 3), np.uint8))
            for _ in range(length)]  # fmt: skip


def play(video: list[Views], net: ProgressNet = NET) -> list:
    """Predictions of a video."""
    state, outputs = net.reset(video[0], ["lift the red cube"] * len(video[0])), []
    for views in video[1:]:
        output, state = net.step(state, views)
        outputs.append(output)
    return outputs


def without_view(video: list[Views], view: int) -> list[Views]:
    present = np.ones((len(video[0]), 3), bool)
    present[:, view] = False
    return [replace(views, present=present) for views in video]


@given(st.lists(PROBABILITY, min_size=3, max_size=3), PROBABILITY)
def test_leave_one_out_never_raises_and_keeps_unanimous_success(leave_one_out, done):
    limited = leave_one_out_success(torch.tensor([done]), torch.tensor([leave_one_out]))
    assert limited <= done
    assert leave_one_out_success(torch.tensor([done]), torch.full((1, 3), done)) == torch.tensor(done)
    assert leave_one_out_success(torch.tensor([1.0]), torch.tensor([[1.0, 0.0, 1.0]])) == 0


def test_success_is_limited_by_predictions_without_each_view(monkeypatch):
    """The prediction without a view equals that of a video without this view."""
    video = random_video(3, 4)
    outputs, without = play(video), [play(without_view(video, view)) for view in range(3)]
    monkeypatch.setattr(progress_net, "leave_one_out_success", lambda done, _: done)
    for t, unlimited in enumerate(play(video)):
        smallest = np.min([curve[t].success for curve in without], axis=0)
        np.testing.assert_allclose(outputs[t].success, np.minimum(unlimited.success, np.sqrt(smallest)), atol=1e-5)
        assert np.array_equal(outputs[t].progress, unlimited.progress)


def test_two_views_are_unaffected_by_other_rows():
    """A row with two views gets the same prediction next to rows with two and with three."""
    video = random_video(2, 3)
    present = np.array([[True, True, False], [True, True, True]])
    mixed = play([replace(views, present=present) for views in video])
    single = play([replace(views.select(np.array([0])), present=present[:1]) for views in video])
    for both, one in zip(mixed, single, strict=True):
        assert both.success[0] == pytest.approx(one.success[0], abs=1e-5)


@pytest.mark.parametrize("color", [(0, 0, 0), (255, 255, 255), (0, 90, 200)])
def test_single_color_view_is_absent(color):
    video = random_video(2, 3)
    for views in video:
        views.frames[:, 1] = color
        views.frames[:, 1, ::2, ::2, 1] ^= 1  # sensor noise
    for dead, absent in zip(play(video), play(without_view(video, 1)), strict=True):
        assert np.array_equal(dead.progress, absent.progress) and np.array_equal(dead.success, absent.success)


def test_row_without_visible_view_is_invalid():
    video = random_video(2, 4)
    video[2].frames[0] = 7
    outputs = play(video)
    assert outputs[1].valid.tolist() == [False, True]
    assert outputs[1].progress[0] == outputs[0].progress[0] and outputs[1].success[0] == outputs[0].success[0]


def test_tensor_frames_give_the_same_visibility():
    (views,) = random_video(2, 1)
    views.frames[1, 2] = 9
    on_device = replace(views, frames=torch.from_numpy(views.frames))
    assert visible_views(views).tolist() == visible_views(on_device).tolist() == [[True] * 3, [True, True, False]]
    assert not visible_views(replace(views, present=np.zeros((2, 3), bool))).any()
