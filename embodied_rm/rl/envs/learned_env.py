"""Vector environments with the reward of a reward model, or one from the simulator's state."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.models.subgoal_state import SubgoalState
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.models.view_agreement import ViewAgreementModel
from embodied_rm.models.view_fusion import visible_views
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.transitions import FloatArray
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.types import IntArray, RewardOutput, Views


class LearnedRewardEnv(RewardEnv):
    """A `RewardEnv` whose scores are those of a `RewardModel`, from camera images.

    The environment must also have `view_names`, `render_views(rows)` -> uint8 [n, V, H, W, 3] and `instructions`, one
    per row. If the model accepts tensors and the environment has `render_tensor(rows)`, images stay on the device that
    rendered them. Subgoals of an instruction are scored one after the other, each with the success threshold and
    patience of the reward.
    """

    required_attrs = ("view_names", "render_views", "instructions")

    def __init__(self, env: gym.vector.VectorEnv, model: RewardModel, config: RewardConfig, gamma: float) -> None:
        super().__init__(env, config, gamma, model.capabilities.success_threshold)
        self.model = self._with_subgoals(model)
        self._reward_state: SubgoalState

    def replace_model(self, model: RewardModel) -> None:
        """Score with another model, with its success threshold, from the next reset on, which must follow.

        Episodes of the model before must not go on: their potentials are of another scale.
        """
        self.model = self._with_subgoals(model)
        self._episodes = self._new_episodes(model.capabilities.success_threshold)
        if self.archive is not None:
            self.archive.clear()

    def _with_subgoals(self, model: RewardModel) -> SubgoalRewardModel:
        if self.config.success_in_each_view:
            model = ViewAgreementModel(model)
        return SubgoalRewardModel(model, self.config.success_threshold, self.config.success_patience)

    def _reset_scores(self, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        views, instructions = self._render(rows), self.env.instructions  # type: ignore[attr-defined]
        with self.stats.time_phase("score"):
            new_state = self.model.reset(views, [instructions[i] for i in rows])
            self._reward_state = new_state if len(rows) == self.num_envs else self._reward_state.put(rows, new_state)
        return new_state.potential()

    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> RewardOutput:
        views = self._render(rows)
        with self.stats.time_phase("score"):
            self._count_dead_views(views)
            output, new_state = self.model.step(self._reward_state.take(rows), views)
            self._reward_state = self._reward_state.put(rows, new_state)
        return output

    def _count_dead_views(self, views: Views) -> None:
        dead_counts = (~visible_views(views)).sum(axis=0)
        for name, count in zip(views.names, dead_counts.tolist(), strict=True):
            self.stats.dead_views[name] = self.stats.dead_views.get(name, 0) + count

    def _embeddings(self) -> FloatArray:
        return self._reward_state.embedding()

    @property
    def _predicts_success(self) -> bool:
        return self.model.capabilities.predicts_success

    @property
    def _is_storable(self) -> bool:
        return self.model.capabilities.serializable_state

    def _reward_state_dict(self) -> dict[str, Tensor]:
        return self._reward_state.state_dict()

    def _load_reward_state(self, state: dict[str, Tensor]) -> None:
        self._reward_state = self._reward_state.from_state_dict(state)

    def _take_reward_state(self, row: int) -> dict[str, Tensor]:
        return self._reward_state.take(np.array([row])).state_dict()

    def _put_reward_state(self, row: int, state: dict[str, Tensor]) -> None:
        self._reward_state = self._reward_state.put(np.array([row]), self._reward_state.from_state_dict(state))

    def _render(self, rows: IntArray) -> Views:
        env: Any = self.env
        keep_on_device = self.model.capabilities.accepts_tensors and hasattr(env, "render_tensor")
        render = env.render_tensor if keep_on_device else env.render_views
        with self.stats.time_phase("render"):
            return Views(names=tuple(env.view_names), frames=render(rows))


class StateRewardEnv(RewardEnv):
    """A `RewardEnv` whose scores come from the simulator's state, for comparison.

    If the rule uses the simulator's progress, the infos must have `progress` and `subtask` [N]. Otherwise all
    potentials are 0, for the critic too. Progress that is not finite is an invalid score. The rule `program` needs
    `program_reward` [N].
    """

    def _reset_scores(self, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        progress = self._read_infos("progress", rows, infos)
        return np.where(np.isfinite(progress), progress, 0.0)

    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> RewardOutput:
        progress = self._read_infos("progress", rows, infos)
        return RewardOutput(
            progress=progress,
            valid=np.isfinite(progress),
            subtask=self._read_infos("subtask", rows, infos).astype(np.int64),
            success=infos["success"][rows].astype(np.float32),
            uncertainty=np.zeros(len(rows), np.float32),
        )

    def _read_infos(self, key: str, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        return infos[key][rows] if self.rule.progress_source == "simulator" else np.zeros(len(rows))

    def _embeddings(self) -> FloatArray:
        raise UserError(f"reward.rule={self.config.rule} needs a reward model: the simulator embeds no states")


def make_reward_env(env: gym.vector.VectorEnv, model: RewardModel, config: RewardConfig, gamma: float) -> RewardEnv:
    """Return the environment with the reward of `config`.

    Without progress and success of the model, nothing is rendered.
    """
    if config.uses_simulator_only:
        return StateRewardEnv(env, config, gamma)
    return LearnedRewardEnv(env, model, config, gamma)
