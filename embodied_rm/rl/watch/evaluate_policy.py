"""How good a policy is: the success rate that the simulator sees, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from embodied_rm.errors import UserError
from embodied_rm.metrics import wilson_interval
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.seeds import stream_seed

EVAL_SEED_STREAM = 2**31
"""Sets the streams of judging episodes apart from all others of the same seed: those of iterations and of
recordings count up from 0."""


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """A success rate over `episodes` episodes, judged by simulator state."""

    successes: int
    episodes: int
    diverged_episodes: int
    """Episodes in which the simulation diverged; they count as failures."""
    mean_steps: float
    """Mean episode length."""

    @property
    def rate(self) -> float:
        return self.successes / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson 95 % interval of the rate."""
        return wilson_interval(self.successes, self.episodes)

    def as_dict(self) -> dict[str, float | int | list[float]]:
        """For metrics.json."""
        return {
            "rate": self.rate,
            "interval": list(self.interval),
            "successes": self.successes,
            "episodes": self.episodes,
            "diverged_episodes": self.diverged_episodes,
            "mean_steps": self.mean_steps,
        }


def evaluate_policy(env: gym.vector.VectorEnv, policy: GaussianPolicy, episodes: int, seed: int) -> EvalResult:
    """Run the policy's mean action for `episodes` episodes of an environment with disabled autoreset.

    An episode is a success when `infos["success"]` holds in its last state; the environment decides when it ends.
    Every row plays a share fixed beforehand, so that short episodes are not counted more often than long ones; seeds
    that follow each other have no start in common, though a row's stream is that of a seed plus its number.
    """
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.DISABLED:
        raise UserError(f"evaluation resets rows itself: it needs autoreset_mode={AutoresetMode.DISABLED}, got {mode}")
    if episodes < 1:
        raise UserError(f"episodes must be >= 1, got {episodes}")
    action_space = env.single_action_space
    assert isinstance(action_space, gym.spaces.Box)
    remaining = np.full(env.num_envs, episodes // env.num_envs) + (np.arange(env.num_envs) < episodes % env.num_envs)
    successes = diverged_episodes = steps = 0
    observation, _ = env.reset(seed=stream_seed(seed, EVAL_SEED_STREAM))
    while remaining.any():
        action = np.clip(policy.act(observation), action_space.low, action_space.high)
        observation, _, terminated, truncated, infos = env.step(action)
        done = terminated | truncated | infos["diverged"]
        active = remaining > 0
        completed = done & active
        steps += int(active.sum())
        successes += int((completed & infos["success"] & ~infos["diverged"]).sum())
        diverged_episodes += int((completed & infos["diverged"]).sum())
        remaining -= completed
        if done.any():
            observation, _ = env.reset(options={"reset_mask": done})
    return EvalResult(
        successes=successes, episodes=episodes, diverged_episodes=diverged_episodes, mean_steps=steps / episodes
    )
