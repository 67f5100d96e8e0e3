"""Tests of the verification of predicted successes by the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from rl_envs import CountingEnv, ImageModel, LookupModel, PointReachEnv

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.watch.crosscheck import CrosscheckResult, crosscheck

CONFIG = RewardConfig(success_source="simulator", success_patience=1)
ENVS = 6


def verify_with_table(success: np.ndarray, **env) -> CrosscheckResult:
    """Verify a table `success` [row, episode, step] without true success; row i ends after i + 2 steps."""
    model = LookupModel(np.zeros_like(success), success, np.ones(success.shape, bool))
    env = LearnedRewardEnv(CountingEnv(ENVS, **env), model, CONFIG, 0.9)
    return crosscheck(env, GaussianPolicy(PolicySpec(obs_dim=3, action_dim=1, hidden=(4,))), seed=0)


def table() -> np.ndarray:
    return np.zeros((ENVS, 8, 10), np.float32)


def test_withdrawn_claim_counts():
    success = table()
    success[[1, 4], 0, 1] = 1
    assert verify_with_table(success) == CrosscheckResult(episodes=ENVS, claimed_successes=2, false_claims=2)


def test_repeated_claim_counts_once():
    success = table()
    success[3, 0, [1, 3]] = 1
    assert verify_with_table(success) == CrosscheckResult(episodes=ENVS, claimed_successes=1, false_claims=1)


def test_only_the_first_episode_of_an_environment_counts():
    success = table()
    success[:, 1:] = 1
    assert verify_with_table(success) == CrosscheckResult(episodes=ENVS, claimed_successes=0, false_claims=0)


def test_diverged_episode_does_not_count():
    success = table()
    success[:, 0, 1] = 1
    result = verify_with_table(success, diverges=lambda row, episode, step: (row, episode, step) == (2, 0, 3))
    assert result == CrosscheckResult(episodes=ENVS - 1, claimed_successes=ENVS - 1, false_claims=ENVS - 1)


class EarlyModel(ImageModel):
    """Predicts success at progress 0.5."""

    def step(self, state, views):
        output, next_state = super().step(state, views)
        return replace(output, success=(output.progress > 0.5).astype(np.float32)), next_state


class Homing(GaussianPolicy):
    """Moves to the origin from the right, and away from it on the left."""

    def sample(self, observation, generator, group=None):
        action = np.where(observation[:, :1] > 0, -observation, np.array([-1.0, 0.0]))
        return action.astype(np.float32), np.zeros(len(action), np.float32)


def verify_point_env(model: ImageModel, seed: int) -> CrosscheckResult:
    env = LearnedRewardEnv(PointReachEnv(64), model, CONFIG, 0.9)
    return crosscheck(env, Homing(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,))), seed)


def test_early_claim_is_not_false_and_seeds_have_different_episodes():
    honest, early = verify_point_env(ImageModel(), 0), verify_point_env(EarlyModel(), 0)
    assert 16 < honest.claimed_successes < 48 and honest.false_claims == 0
    assert early == honest, "early claims came true"
    assert verify_point_env(ImageModel(), 0) == honest
    assert len({verify_point_env(ImageModel(), seed).claimed_successes for seed in range(6)}) > 1


def test_policy_explores_during_verification():
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,), log_std_init=0.0))
    torch.nn.init.zeros_(policy.mlp[-1].weight)

    class Strayed(ImageModel):
        """Predicts success for points off the initial circle."""

        def step(self, state, views):
            output, next_state = super().step(state, views)
            return replace(output, success=(output.progress > 0.02).astype(np.float32)), next_state

    env = LearnedRewardEnv(PointReachEnv(64), Strayed(), CONFIG, 0.9)
    assert crosscheck(env, policy, 0).false_claims > 30
