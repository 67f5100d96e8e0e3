"""What a learned reward costs: the same rollout with it on every step, and without any picture."""

from __future__ import annotations

import time

import gymnasium as gym
import numpy as np
import torch

from embodied_rm.models.base import RewardModel
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.envs.reward_config import RewardConfig
from embodied_rm.rl.learner.policy import GaussianPolicy


def measure_rollout(
    env: gym.vector.VectorEnv, model: RewardModel, policy: GaussianPolicy, steps: int = 60, seed: int = 0
) -> dict[str, float]:
    """Environment steps per second of `steps` steps with and without the learned reward, and each stage's share.

    `env` is what `LearnedRewardEnv` needs. Both rollouts use the same policy and the same seeds; the first steps of
    each are not timed (first pictures and kernels are slower).
    """
    wrapped = LearnedRewardEnv(env, model, RewardConfig(score_every=1), gamma=0.99)
    _play(wrapped, policy, 3, seed)
    wrapped.drain()
    scored = _play(wrapped, policy, steps, seed)
    seconds = wrapped.drain().seconds
    _play(env, policy, 3, seed)
    plain = _play(env, policy, steps, seed)
    total = steps * env.num_envs
    shares = {f"share_{stage}": seconds[stage] / scored for stage in ("physics", "render", "score")}
    return {
        "num_envs": env.num_envs,
        "views": len(env.view_names),  # type: ignore[attr-defined]
        "rollout_env_steps_per_s": total / scored,
        "physics_env_steps_per_s": total / plain,
        "rendered_views_per_s": total * len(env.view_names) / seconds["render"],  # type: ignore[attr-defined]
        **shares,
    }


def _play(env: gym.vector.VectorEnv, policy: GaussianPolicy, steps: int, seed: int) -> float:
    """Seconds that `steps` steps take; ended rows are reset where the environment does not do so itself."""
    generator = torch.Generator().manual_seed(seed)
    observation, _ = env.reset(seed=seed)
    start = time.perf_counter()
    for _ in range(steps):
        action, _ = policy.sample(observation, generator)
        observation, _, terminated, truncated, _ = env.step(np.clip(action, -1.0, 1.0))
        ended = terminated | truncated
        if ended.any() and not isinstance(env, LearnedRewardEnv):
            observation, _ = env.reset(options={"reset_mask": ended})
    return time.perf_counter() - start
