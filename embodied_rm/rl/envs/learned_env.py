"""The vector environment whose scores are a reward model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from torch import Tensor

from embodied_rm.models.base import RewardModel
from embodied_rm.models.plan_memory import PlanMemory
from embodied_rm.models.plans import Plans
from embodied_rm.models.witness import there
from embodied_rm.rewards.steps import Floats
from embodied_rm.rl.envs.reward_config import RewardConfig
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.envs.state_env import StateRewardEnv
from embodied_rm.types import IntArray, Progress, Views


class LearnedRewardEnv(RewardEnv):
    """Scores are a `RewardModel`'s, of pictures: the environment must also have `view_names`, `render_views(rows)` ->
    uint8 [n, V, H, W, 3] and `instructions` (one a row). A model with `takes_tensors` is given `render_tensor(rows)`
    where there is one: pictures that never leave the device they were drawn on. Instructions of several wishes are
    judged one after the other, each done as an episode is: by the same threshold and patience."""

    needed = ("view_names", "render_views", "instructions")

    def __init__(self, env: gym.vector.VectorEnv, model: RewardModel, config: RewardConfig, gamma: float) -> None:
        super().__init__(env, config, gamma)
        self.model = Plans(model, config.success_threshold, config.success_patience)
        self._memory: PlanMemory

    def _begin(self, rows: IntArray, infos: Mapping[str, Any]) -> Floats:
        views, instructions = self._render(rows), self.env.instructions  # type: ignore[attr-defined]
        with self.stats.timed("score"):
            begun = self.model.begin(views, [instructions[i] for i in rows])
            self._memory = begun if len(rows) == self.num_envs else self._memory.put(rows, begun)
        return begun.potential()

    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> Progress:
        views = self._render(rows)
        with self.stats.timed("score"):
            self._look_for_dead(views)
            progress, advanced = self.model.advance(self._memory.take(rows), views)
            self._memory = self._memory.put(rows, advanced)
        return progress

    def _look_for_dead(self, views: Views) -> None:
        dead = (~there(views)).sum(axis=0)
        for name, count in zip(views.names, dead.tolist(), strict=True):
            self.stats.dead_views[name] = self.stats.dead_views.get(name, 0) + count

    def _embedding(self) -> Floats:
        return self._memory.embedding()

    @property
    def _tells_success(self) -> bool:
        return self.model.tells_success

    @property
    def _storable(self) -> bool:
        return self._memory.storable

    def _memory_state(self) -> dict[str, Tensor]:
        return self._memory.state()

    def _restore_memory(self, state: dict[str, Tensor]) -> None:
        self._memory = self._memory.restored(state)

    def _render(self, rows: IntArray) -> Views:
        env: Any = self.env
        stay = self.model.takes_tensors and hasattr(env, "render_tensor")
        render = env.render_tensor if stay else env.render_views
        with self.stats.timed("render"):
            return Views(names=tuple(env.view_names), frames=render(rows))


def make_reward_env(env: gym.vector.VectorEnv, model: RewardModel, config: RewardConfig, gamma: float) -> RewardEnv:
    """The environment with the reward that is asked for; nothing is drawn where neither progress nor success is the
    model's to say."""
    if config.of_simulator:
        return StateRewardEnv(env, config, gamma)
    return LearnedRewardEnv(env, model, config, gamma)
