"""Claims of success are counted in the episodes in which they are made, and held against the simulator there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from rl_envs import CountingEnv, ImageModel, LookupModel, PointReachEnv

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.watch.crosscheck import CrosscheckResult, crosscheck

ASKED = RewardConfig(success_source="simulator", success_patience=1)
ENVS = 6


def checked_by_table(success: np.ndarray, **env) -> CrosscheckResult:
    """Of environments in which nothing is ever done: row i ends after i + 2 steps; `success` [row, episode, step]."""
    model = LookupModel(np.zeros_like(success), success, np.ones(success.shape, bool))
    env = LearnedRewardEnv(CountingEnv(ENVS, **env), model, ASKED, 0.9)
    return crosscheck(env, GaussianPolicy(PolicySpec(obs_dim=3, action_dim=1, hidden=(4,))), seed=0)


def table() -> np.ndarray:
    return np.zeros((ENVS, 8, 10), np.float32)


def test_a_claim_that_is_withdrawn_is_one():
    success = table()
    success[[1, 4], 0, 1] = 1
    assert checked_by_table(success) == CrosscheckResult(episodes=ENVS, claimed_successes=2, false_claims=2)


def test_a_claim_made_twice_is_one():
    success = table()
    success[3, 0, [1, 3]] = 1
    assert checked_by_table(success) == CrosscheckResult(episodes=ENVS, claimed_successes=1, false_claims=1)


def test_only_the_first_episode_of_a_env_counts_for_short_ones_come_more_often():
    success = table()
    success[:, 1:] = 1
    assert checked_by_table(success) == CrosscheckResult(episodes=ENVS, claimed_successes=0, false_claims=0)


def test_an_episode_that_broke_down_does_not_count():
    success = table()
    success[:, 0, 1] = 1
    found = checked_by_table(success, diverges=lambda row, episode, step: (row, episode, step) == (2, 0, 3))
    assert found == CrosscheckResult(episodes=ENVS - 1, claimed_successes=ENVS - 1, false_claims=ENVS - 1)


class Hasty(ImageModel):
    """Says "done" half-way."""

    def step(self, memory, views):
        told, after = super().step(memory, views)
        return replace(told, success=(told.progress > 0.5).astype(np.float32)), after


class Homing(GaussianPolicy):
    """Goes to the origin from the right; from the left it goes on to the left."""

    def sample(self, observation, generator, group=None):
        way = np.where(observation[:, :1] > 0, -observation, np.array([-1.0, 0.0]))
        return way.astype(np.float32), np.zeros(len(way), np.float32)


def checked_point(model: ImageModel, seed: int) -> CrosscheckResult:
    env = LearnedRewardEnv(PointReachEnv(64), model, ASKED, 0.9)
    return crosscheck(env, Homing(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,))), seed)


def test_what_the_simulator_sees_later_was_no_false_claim_and_seeds_are_other_episodes():
    honest, hasty = checked_point(ImageModel(), 0), checked_point(Hasty(), 0)
    assert 16 < honest.claimed_successes < 48 and honest.false_claims == 0
    assert hasty == honest, "a moment early, or twenty: it came true"
    assert checked_point(ImageModel(), 0) == honest
    assert len({checked_point(ImageModel(), seed).claimed_successes for seed in range(6)}) > 1


def test_a_policy_is_checked_as_it_explores():
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,), log_std_init=0.0))
    torch.nn.init.zeros_(policy.mlp[-1].weight)

    class Strayed(ImageModel):
        """Says "done" of whoever has left the circle on which all start."""

        def step(self, memory, views):
            told, after = super().step(memory, views)
            return replace(told, success=(told.progress > 0.02).astype(np.float32)), after

    env = LearnedRewardEnv(PointReachEnv(64), Strayed(), ASKED, 0.9)
    assert crosscheck(env, policy, 0).false_claims > 30
