"""The vector environment whose scores are the simulator's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.rewards.transitions import FloatArray
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.types import IntArray, RewardOutput


class StateRewardEnv(RewardEnv):
    """Scores are the simulator's own, for comparison. Where the rule asks how far the task is, the environment's infos
    must also hold `progress` and `stage` [N]; else nobody is told, the critic neither."""

    def _reset_scores(self, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        return self._read_infos("progress", rows, infos)

    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> RewardOutput:
        success = infos["success"][rows].astype(np.float32)
        return RewardOutput(
            progress=self._read_infos("progress", rows, infos),
            valid=np.ones(len(rows), bool),
            subtask=self._read_infos("stage", rows, infos).astype(np.int64),
            success=success,
            uncertainty=np.zeros(len(rows), np.float32),
        )

    def _read_infos(self, key: str, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        return infos[key][rows] if self.rule.progress_source == "simulator" else np.zeros(len(rows))

    def _embeddings(self) -> FloatArray:
        raise UserError(f"reward.rule={self.config.rule} needs a reward model: the simulator embeds no states")
