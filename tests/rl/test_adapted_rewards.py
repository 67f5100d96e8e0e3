"""Tests of learned rewards with the adapters for SB3 and rsl_rl."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_envs import CountingEnv, ImageModel, LookupModel, PointReachEnv
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_sim.adapters.rsl_rl import OBS_GROUP, RslRlVecEnv
from embodied_sim.adapters.sb3 import Sb3VecEnv

ROWS, STEPS, GAMMA = 4, 30, 0.9
DIVERGENCE = (2, 1, 3)
"""The row, episode and step at which the simulation diverges."""


def make_counting_env() -> LearnedRewardEnv:
    """Row i ends by time limit after i + 2 steps; its observation is (row, episode, step)."""
    table = np.random.default_rng(0).random((ROWS, 50, ROWS + 3)).astype(np.float32)
    model = LookupModel(progress=table, success=np.zeros_like(table), valid=np.ones(table.shape, bool))
    return LearnedRewardEnv(CountingEnv(ROWS, lambda *at: at == DIVERGENCE), model, RewardConfig(), GAMMA)


def steps_of_sb3():
    """Every step's (observation, reward, done, truncated, final observation) through the adapter."""
    env = Sb3VecEnv(make_counting_env())
    env.reset()
    for _ in range(STEPS):
        observation, reward, done, infos = env.step(np.zeros((ROWS, 1), np.float32))
        final = [info.get("terminal_observation", observation[row]) for row, info in enumerate(infos)]
        yield observation, reward, done, np.array([info["TimeLimit.truncated"] for info in infos]), np.array(final)


def steps_of_rsl_rl():
    """Every step through the rsl_rl adapter."""
    env = RslRlVecEnv(make_counting_env())
    for _ in range(STEPS):
        observation, reward, done, extras = env.step(torch.zeros(ROWS, 1))
        final = extras["final_obs"][OBS_GROUP].numpy()
        yield observation[OBS_GROUP].numpy(), reward.numpy(), done.numpy() > 0, extras["time_outs"].numpy(), final


@pytest.mark.parametrize("steps_of_adapter", [steps_of_sb3, steps_of_rsl_rl])
def test_adapters_pass_ends_rewards_and_divergences(steps_of_adapter) -> None:
    plain = make_counting_env()
    plain.reset()
    ends = 0
    for observation, reward, done, truncated, final in steps_of_adapter():
        true_obs, true_reward, terminated, timed_out, infos = plain.step(np.zeros((ROWS, 1), np.float32))
        np.testing.assert_array_equal(observation, true_obs)
        np.testing.assert_array_equal(final, infos["final_obs"])
        np.testing.assert_array_equal(done, terminated | timed_out)
        np.testing.assert_array_equal(truncated, timed_out)
        np.testing.assert_array_equal(reward, np.where(infos["valid_transition"], true_reward, 0).astype(np.float32))
        for row in np.flatnonzero(done & infos["valid_transition"]):
            assert final[row, 2] == row + 2 and observation[row, 2] == 0, "the last step of the episode, not the next"
            assert observation[row, 1] == final[row, 1] + 1
            ends += 1
        if not infos["valid_transition"].all():
            assert tuple(final[DIVERGENCE[0]]) == (*DIVERGENCE[:2], DIVERGENCE[2] - 1), "the last valid observation"
    assert ends > 20 and plain.stats.diverged_episodes == 1


def test_sb3_learns_on_a_learned_reward() -> None:
    """PPO of SB3 learns to reach the goal; the reward of the wrapped environment is 0."""
    envs = LearnedRewardEnv(PointReachEnv(16), ImageModel(), RewardConfig(success_patience=3), 0.95)
    env = VecMonitor(Sb3VecEnv(envs))
    learner = PPO("MlpPolicy", env, n_steps=32, batch_size=128, learning_rate=1e-3, gamma=0.95, seed=0, device="cpu")
    learner.learn(2 * 32 * 16)
    early = np.mean(learner.ep_success_buffer)
    learner.learn(25 * 32 * 16, reset_num_timesteps=False)
    assert early < 0.3 and np.mean(learner.ep_success_buffer) > 0.8
