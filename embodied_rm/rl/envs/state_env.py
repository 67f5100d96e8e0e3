"""The vector environment whose scores are the simulator's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.rewards.steps import Floats
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.types import IntArray, Progress


class StateRewardEnv(RewardEnv):
    """Scores are the simulator's own, for comparison. Where the rule asks how far the task is, the environment's infos
    must also hold `progress` and `stage` [N]; else nobody is told, the critic neither."""

    def _begin(self, rows: IntArray, infos: Mapping[str, Any]) -> Floats:
        return self._true("progress", rows, infos)

    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> Progress:
        success = infos["success"][rows].astype(np.float32)
        return Progress(
            value=self._true("progress", rows, infos),
            valid=np.ones(len(rows), bool),
            stage=self._true("stage", rows, infos).astype(np.int64),
            success=success,
            spread=np.zeros(len(rows), np.float32),
        )

    def _true(self, what: str, rows: IntArray, infos: Mapping[str, Any]) -> Floats:
        return infos[what][rows] if self.rule.by == "simulator" else np.zeros(len(rows))

    def _embedding(self) -> Floats:
        raise UserError(f"reward.rule={self.config.rule} needs a reward model: the simulator embeds no states")
