"""A model that sees some of the views only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from test_progress_net import NAMES, NET, SENTENCES, N, make_clip

from embodied_rm.models.reward_model import Demonstration, RewardState
from embodied_rm.models.view_subset import ViewSubset
from embodied_rm.types import RewardOutput, Views

KEPT = (NAMES[2], NAMES[0])  # in another order than the views


class RecordingModel:
    """ProgressNet that keeps the views it gets."""

    capabilities = replace(NET.capabilities, interval_scale=2.0, success_threshold=0.9)

    def __init__(self) -> None:
        self.received: list[Views] = []

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> RewardState:
        assert goal is not None and reference is not None
        self.received += [views, goal, reference.views]
        return NET.reset(views, instructions)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        self.received.append(views)
        return NET.step(state, views)


def test_only_the_named_views_of_frames_goal_and_demonstration_arrive() -> None:
    first, second = make_clip(2)
    present = np.ones((N, len(NAMES)), bool)
    present[1, 2] = False
    second = replace(second, present=present)
    demonstration = Demonstration(views=second, instructions=SENTENCES, progress=np.zeros((N, 1), np.float32))
    inner = RecordingModel()
    model = ViewSubset(inner, KEPT)
    model.step(model.reset(first, SENTENCES, second, demonstration), second)
    for whole, part in zip((first, second, second, second), inner.received, strict=True):
        assert part.names == (NAMES[0], NAMES[2])
        assert np.array_equal(part.frames, np.asarray(whole.frames)[:, [0, 2]])
        assert whole.present is None or np.array_equal(part.present, present[:, [0, 2]])


def test_the_calibration_of_all_views_does_not_hold_for_some() -> None:
    capabilities = ViewSubset(RecordingModel(), KEPT).capabilities
    assert capabilities.interval_scale is None and capabilities.success_threshold is None
