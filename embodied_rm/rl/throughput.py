"""Throughput of a rollout with a learned reward at every step, and without images."""

import time

import gymnasium as gym
import numpy as np
import torch

from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy


def measure_rollout(
    env: gym.vector.VectorEnv, model: RewardModel, policy: GaussianPolicy, num_steps: int = 60, seed: int = 0
) -> dict[str, float]:
    """Measure the environment steps per second with and without the learned reward, and the fraction of each phase.

    Both rollouts have the same policy, seeds and `num_steps` per environment. Their first steps are not timed, because
    first images and kernels are slower.
    """
    reward_env = LearnedRewardEnv(env, model, RewardConfig(score_every=1), gamma=0.99)
    _time_rollout(reward_env, policy, 3, seed)
    reward_env.pop_stats()
    scored_s = _time_rollout(reward_env, policy, num_steps, seed)
    seconds = reward_env.pop_stats().seconds
    _time_rollout(env, policy, 3, seed)
    unscored_s = _time_rollout(env, policy, num_steps, seed)
    env_steps = num_steps * env.num_envs
    fractions = {f"fraction_{phase}": seconds[phase] / scored_s for phase in ("physics", "render", "score")}
    return {
        "num_envs": env.num_envs,
        "views": len(env.view_names),  # type: ignore[attr-defined]
        "rollout_env_steps_per_s": env_steps / scored_s,
        "physics_env_steps_per_s": env_steps / unscored_s,
        "rendered_views_per_s": env_steps * len(env.view_names) / seconds["render"],  # type: ignore[attr-defined]
        **fractions,
    }


def _time_rollout(env: gym.vector.VectorEnv, policy: GaussianPolicy, num_steps: int, seed: int) -> float:
    """Return the seconds of a rollout; ended rows are reset if the environment does not do so."""
    generator = torch.Generator().manual_seed(seed)
    observation, _ = env.reset(seed=seed)
    start_time = time.perf_counter()
    for _ in range(num_steps):
        action, _ = policy.sample(observation, generator)
        observation, _, terminated, truncated, _ = env.step(np.clip(action, -1.0, 1.0))
        done = terminated | truncated
        if done.any() and not isinstance(env, LearnedRewardEnv):
            observation, _ = env.reset(options={"reset_mask": done})
    return time.perf_counter() - start_time
