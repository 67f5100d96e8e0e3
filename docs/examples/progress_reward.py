"""A dense reward for the examples: every step pays the true progress that it makes."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorWrapper


class ProgressReward(VectorWrapper):
    """Around a `TabletopVecEnv`: the reward of a step is the difference of `progress` across it; done pays 1 more."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode in every row."""
        observation, infos = self.env.reset(seed=seed, options=options)
        self._progress = infos["progress"]
        return observation, infos

    def step(self, actions: Any) -> Any:
        """Step every row; the environment's own reward is 1 when success is first sustained."""
        observation, success_reward, terminated, truncated, infos = self.env.step(actions)
        reward = infos["final_info"]["progress"] - self._progress + success_reward
        # Where an episode ended, that of the new one.
        self._progress = infos["progress"]
        return observation, reward, terminated, truncated, infos
