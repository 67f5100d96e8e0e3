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

CHECKED = 16
"""Worlds, and episodes of one check: a fifth more time, and 48 in the three iterations that the alarm looks at
together."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Episodes that the model judged and did not end."""

    episodes: int
    claims: int
    """Of those, in how many the model sustained its verdict of success at some time."""
    unfounded: int
    """Of those, in how many the simulator never saw one."""


def crosscheck(env: RewardEnv, policy: GaussianPolicy, seed: int) -> Checked:
    """One episode in every world of an environment with `success=simulator`, explored as in training. Those in which
    the simulation diverged do not count."""
    assert env.config.success == "simulator"
    space, generator = env.single_action_space, torch.Generator().manual_seed(seed)
    assert isinstance(space, gym.spaces.Box)
    observation, _ = env.reset(seed=seed)
    playing, claimed = np.ones(env.num_envs, bool), np.zeros(env.num_envs, bool)
    episodes = claims = unfounded = 0
    while playing.any():
        action, _ = policy.sample(observation, generator)
        observation, _, terminated, truncated, infos = env.step(np.clip(action, space.low, space.high))
        claimed |= infos["learned_success"]
        ended = (terminated | truncated) & playing
        whole = ended & infos["valid"]
        episodes += int(whole.sum())
        claims += int((whole & claimed).sum())
        unfounded += int((whole & claimed & ~infos["success"]).sum())
        playing &= ~ended
    return Checked(episodes=episodes, claims=claims, unfounded=unfounded)
