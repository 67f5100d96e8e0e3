"""Verification by the simulator of successes that the model predicts, in the same episodes.

Training episodes cannot verify them: the model ends these episodes, often one step before success.
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch

from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy

NUM_VERIFICATION_EPISODES = 16
"""Environments, and episodes, per verification: 48 in the three iterations of the alarm, for a fifth more time."""


@dataclass(frozen=True, kw_only=True)
class CrosscheckResult:
    """Counts of episodes in which the model predicted success without ending them."""

    episodes: int
    claimed_successes: int  # episodes in which the model predicted sustained success
    false_claims: int  # episodes of these in which the simulator did not report success


def crosscheck(env: RewardEnv, policy: GaussianPolicy, seed: int) -> CrosscheckResult:
    """Play one episode per environment with the exploration of training; diverged episodes do not count.

    The environment has `success_source=simulator`; `seed` is that of episodes and actions.
    """
    assert env.config.success_source == "simulator"
    action_space, generator = env.single_action_space, torch.Generator().manual_seed(seed)
    assert isinstance(action_space, gym.spaces.Box)
    observation, _ = env.reset(seed=seed)
    active = np.ones(env.num_envs, bool)
    claimed = np.zeros(env.num_envs, bool)
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
