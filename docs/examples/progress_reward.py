"""A dense reward for the examples: the change of the true progress."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorWrapper


class ProgressReward(VectorWrapper):
    """Wrapper of a `TabletopVecEnv`: the reward is the difference of `progress`, plus 1 for success."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode in every row."""
        observation, infos = self.env.reset(seed=seed, options=options)
        self._progress = infos["progress"]
        return observation, infos

    def step(self, actions: Any) -> Any:
        """Step every row; the environment's reward is 1 when success is first sustained."""
        observation, success_reward, terminated, truncated, infos = self.env.step(actions)
        reward = infos["final_info"]["progress"] - self._progress + success_reward
        # For ended episodes, this is the progress of the next one.
        self._progress = infos["progress"]
        return observation, reward, terminated, truncated, infos
