"""Evaluation of a policy: success rate according to the simulator, with its interval."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from embodied_rm.errors import UserError
from embodied_rm.metrics import wilson_interval
from embodied_rm.rl.learner.policy import GaussianPolicy

EVAL_SEED_STREAM = 2**31
"""Separates evaluation episodes from all others of the same seed: iterations and recordings count up from 0."""


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Success rate over `episodes` episodes, according to the simulator."""

    successes: int
    episodes: int
    diverged_episodes: int  # episodes in which the simulation diverged; they count as failures
    mean_steps: float  # mean episode length

    @property
    def rate(self) -> float:
        """Success rate in [0, 1]."""
        return self.successes / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the rate."""
        return wilson_interval(self.successes, self.episodes)

    def as_dict(self) -> dict[str, float | int | list[float]]:
        """Return the entries for metrics.json."""
        return {"rate": self.rate, "interval": list(self.interval), **vars(self)}


def evaluate_policy(env: gym.vector.VectorEnv, policy: GaussianPolicy, episodes: int, seed: int) -> EvalResult:
    """Evaluate the mean action of a policy.

    An episode is a success if `infos["success"]` is true in its last state; the environment, without autoreset, ends
    episodes. Each row plays a fixed number of episodes, so that short episodes do not count more often than long ones.
    Consecutive seeds have no start in common.
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
    counts = {"successes": successes, "episodes": episodes, "diverged_episodes": diverged_episodes}
    return EvalResult(**counts, mean_steps=steps / episodes)


def stream_seed(*key: int) -> int:
    """Return the seed of a key, an int in [0, 2**31); trailing zeros of the key are ignored.

    Similar keys have seeds that are far apart, because row i of a vector environment uses the seed plus i.
    """
    return int(np.random.SeedSequence(list(key)).generate_state(1)[0] >> 1)
