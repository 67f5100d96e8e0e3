"""The reward model of real robots that `embodied_rm.load_reward_model("real")` returns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embodied_rm.api.base_reward_model import BaseRewardModel, check_overwrite
from embodied_rm.models.reward_model import RewardState
from embodied_rm.models.zero_shot.zero_shot_checkpoint import save_zero_shot_model
from embodied_rm.models.zero_shot.zero_shot_model import ZeroShotModel
from embodied_rm.types import RewardOutput, Views


class ZeroShotRewardModel(BaseRewardModel[ZeroShotModel]):
    """A reward model for video of real robots that it never saw: score, evaluate, audit, save.

    It is a `RewardModel` too (`reset`, `step`), so that environments and services take it as it is. It uses neither
    goal images nor demonstrations.
    """

    def __init__(self, model: ZeroShotModel, metadata: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            model: The model that predicts.
            metadata: What its checkpoint states about it: its labs, and what it reaches on them.
        """
        super().__init__(model)
        self.metadata = dict(metadata or {})

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a checkpoint without the encoders: safetensors and a JSON manifest with SHA-256 sums.

        Args:
            folder: Where to write it; `load_reward_model` and `checkpoint=` read it.
            overwrite: Replace the checkpoint that is in the folder.

        Raises:
            UserError: When the folder holds something and `overwrite` is not set.
        """
        check_overwrite(Path(folder), overwrite=overwrite)
        save_zero_shot_model(folder, self.model, self.metadata)

    def first_output(self, state: RewardState) -> RewardOutput:
        """Return the prediction for the first frames; see `ScoresFirstFrame`."""
        return self.model.first_output(state)

    def step_many(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Score consecutive frames of one video; see `StepsMany`."""
        return self.model.step_many(state, views)
