"""The reward model of real robots that `embodied_rm.load_reward_model("real")` returns."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.api.base_reward_model import BaseRewardModel
from embodied_rm.models.reward_model import RewardState
from embodied_rm.models.zero_shot.zero_shot_checkpoint import save_zero_shot_model
from embodied_rm.models.zero_shot.zero_shot_model import ZeroShotModel
from embodied_rm.types import RewardOutput, Views


class ZeroShotRewardModel(BaseRewardModel[ZeroShotModel]):
    """A reward model for video of real robots that it never saw: score, evaluate, audit, save, push.

    It is a `RewardModel` too (`reset`, `step`), so that environments and services take it as it is. It uses neither
    goal images nor demonstrations.
    """

    def _write_checkpoint(self, folder: Path) -> None:
        save_zero_shot_model(folder, self.model, self.metadata)

    def first_output(self, state: RewardState) -> RewardOutput:
        """Return the prediction for the first frames; see `ScoresFirstFrame`."""
        return self.model.first_output(state)

    def step_many(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Score consecutive frames of one video; see `StepsMany`."""
        return self.model.step_many(state, views)
