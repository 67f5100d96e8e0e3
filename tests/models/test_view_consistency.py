"""Which views are believed: dead cameras are absent, and "done" must hold without any one of three views."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.models import progress_net
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.view_consistency import leave_one_out_success, visible_views
from embodied_rm.types import Views

NAMES = ("front", "side", "wrist")
NET = ProgressNet(NetConfig(views=NAMES)).eval()
PROBABILITY = st.floats(0, 1, width=32)


def video(rows: int, length: int, names: tuple[str, ...] = NAMES) -> list[Views]:
    rng = np.random.default_rng(rows)
    return [Views(names=names, frames=rng.integers(0, 256, (rows, len(names), 64, 64, 3), np.uint8))
            for _ in range(length)]  # fmt: skip


def play(shown: list[Views], net: ProgressNet = NET) -> list:
    """The predictions of a video."""
    memory, said = net.reset(shown[0], ["lift the red cube"] * len(shown[0])), []
    for views in shown[1:]:
        judged, memory = net.step(memory, views)
        said.append(judged)
    return said


def without(shown: list[Views], view: int) -> list[Views]:
    present = np.ones((len(shown[0]), 3), bool)
    present[:, view] = False
    return [replace(views, present=present) for views in shown]


@given(st.lists(PROBABILITY, min_size=3, max_size=3), PROBABILITY)
def test_agreement_never_adds_to_a_verdict_and_takes_nothing_from_one_that_all_share(others, done):
    said = leave_one_out_success(torch.tensor([done]), torch.tensor([others]))
    assert said <= done
    assert leave_one_out_success(torch.tensor([done]), torch.full((1, 3), done)) == torch.tensor(done)
    assert leave_one_out_success(torch.tensor([1.0]), torch.tensor([[1.0, 0.0, 1.0]])) == 0


def test_done_is_what_is_done_without_any_one_view(monkeypatch):
    """Each look is a history of its own: what a video says that never had that view."""
    shown = video(3, 4)
    judged, alone = play(shown), [play(without(shown, view)) for view in range(3)]
    monkeypatch.setattr(progress_net, "leave_one_out_success", lambda done, _: done)
    for t, believed in enumerate(play(shown)):
        least = np.min([said[t].success for said in alone], axis=0)
        np.testing.assert_allclose(judged[t].success, np.minimum(believed.success, np.sqrt(least)), atol=1e-5)
        assert np.array_equal(judged[t].progress, believed.progress)


def test_of_two_views_both_are_believed_whoever_else_is_in_the_batch():
    """A row of two views is judged alike beside rows of two and of three."""
    shown = video(2, 3)
    pair = np.array([[True, True, False], [True, True, True]])
    mixed = play([replace(views, present=pair) for views in shown])
    alone = play([replace(views.select(np.array([0])), present=pair[:1]) for views in shown])
    for both, one in zip(mixed, alone, strict=True):
        assert both.success[0] == pytest.approx(one.success[0], abs=1e-5)


@pytest.mark.parametrize("color", [(0, 0, 0), (255, 255, 255), (0, 90, 200)])
def test_a_dead_camera_is_an_absent_one(color):
    shown = video(2, 3)
    for views in shown:
        views.frames[:, 1] = color
        views.frames[:, 1, ::2, ::2, 1] ^= 1  # noise of a dead sensor
    for dead, gone in zip(play(shown), play(without(shown, 1)), strict=True):
        assert np.array_equal(dead.progress, gone.progress) and np.array_equal(dead.success, gone.success)


def test_where_every_camera_is_dead_nothing_is_judged():
    shown = video(2, 4)
    shown[2].frames[0] = 7
    judged = play(shown)
    assert judged[1].valid.tolist() == [False, True]
    assert judged[1].progress[0] == judged[0].progress[0] and judged[1].success[0] == judged[0].success[0]


def test_images_on_a_device_are_looked_at_alike():
    (views,) = video(2, 1)
    views.frames[1, 2] = 9
    held = replace(views, frames=torch.from_numpy(views.frames))
    assert visible_views(views).tolist() == visible_views(held).tolist() == [[True] * 3, [True, True, False]]
    assert not visible_views(replace(views, present=np.zeros((2, 3), bool))).any()
