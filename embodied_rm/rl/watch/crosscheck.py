"""Whether the simulator bears out what the model calls a success, in the same episodes.

Training episodes cannot tell: the model ends them, often a step early, and nobody sees what they would have come to.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch

from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy

NUM_VERIFICATION_EPISODES = 16
"""Environments, and episodes of one check: a fifth more time, and 48 in the three iterations that the alarm looks at
together."""


@dataclass(frozen=True, kw_only=True)
class CrosscheckResult:
    """Episodes that the model judged and did not end."""

    episodes: int
    claimed_successes: int
    """Of those, in how many the model sustained its verdict of success at some time."""
    false_claims: int
    """Of those, in how many the simulator never saw one."""


def crosscheck(env: RewardEnv, policy: GaussianPolicy, seed: int) -> CrosscheckResult:
    """One episode in every environment of an environment with `success=simulator`, explored as in training. Those in which
    the simulation diverged do not count."""
    assert env.config.success_source == "simulator"
    action_space, generator = env.single_action_space, torch.Generator().manual_seed(seed)
    assert isinstance(action_space, gym.spaces.Box)
    observation, _ = env.reset(seed=seed)
    active, claimed = np.ones(env.num_envs, bool), np.zeros(env.num_envs, bool)
    episodes = claimed_successes = false_claims = 0
    while active.any():
        action, _ = policy.sample(observation, generator)
        observation, _, terminated, truncated, infos = env.step(np.clip(action, action_space.low, action_space.high))
        claimed |= infos["predicted_success"]
        done = (terminated | truncated) & active
        completed = done & infos["valid_transition"]
        episodes += int(completed.sum())
        claimed_successes += int((completed & claimed).sum())
        false_claims += int((completed & claimed & ~infos["success"]).sum())
        active &= ~done
    return CrosscheckResult(episodes=episodes, claimed_successes=claimed_successes, false_claims=false_claims)
