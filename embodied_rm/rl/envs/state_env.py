"""A vector environment with a reward from the simulator's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.rewards.transitions import FloatArray
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.types import IntArray, RewardOutput


class StateRewardEnv(RewardEnv):
    """A `RewardEnv` whose scores come from the simulator's state, for comparison.

    If the rule uses the simulator's progress, the infos must have `progress` and `subtask` [N]. Otherwise all
    potentials are 0, for the critic too.
    """

    def _reset_scores(self, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        return self._read_infos("progress", rows, infos)

    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> RewardOutput:
        return RewardOutput(
            progress=self._read_infos("progress", rows, infos),
            valid=np.ones(len(rows), bool),
            subtask=self._read_infos("subtask", rows, infos).astype(np.int64),
            success=infos["success"][rows].astype(np.float32),
            uncertainty=np.zeros(len(rows), np.float32),
        )

    def _read_infos(self, key: str, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        return infos[key][rows] if self.rule.progress_source == "simulator" else np.zeros(len(rows))

    def _embeddings(self) -> FloatArray:
        raise UserError(f"reward.rule={self.config.rule} needs a reward model: the simulator embeds no states")
