"""Tests of the reward from the simulator's state, and of the cost of a learned reward relative to it."""

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from rl_envs import CountingEnv

from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import StateRewardEnv
from embodied_rm.rl.envs.rollout_stats import PHASES
from embodied_rm.rl.iteration_cost import IterationTiming, summarize_cost, time_iterations
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.refine_config import RefineConfig
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.vec_env import TabletopVecEnv


def envs(num_envs: int) -> TabletopVecEnv:
    return TabletopVecEnv("lift_cube", num_envs, views=("front",), autoreset_mode=AutoresetMode.DISABLED)


def test_return_of_the_expert_is_its_success():
    """Shaping telescopes: with gamma 1, the return is the success reward minus the initial progress."""
    inner = envs(4)
    env = StateRewardEnv(inner, RewardConfig(rule="dense", success_source="simulator", score_every=3), gamma=1.0)
    _, infos = env.reset(seed=3)
    start = infos["progress"].copy()
    actor = ScriptedPolicy(inner, seed=0)
    actor.reset(np.arange(4))
    returns, done = np.zeros(4), np.zeros(4, bool)
    for _ in range(inner.max_episode_steps - 1):
        _, reward, terminated, truncated, _ = env.step(actor.act())
        returns += np.where(done, 0, reward)
        done |= terminated | truncated
        if done.all():
            break
    env.close()
    assert done.all()
    assert np.allclose(returns, 1 - start, atol=1e-5)


def test_no_images_are_rendered():
    env = StateRewardEnv(CountingWithProgress(3), RewardConfig(rule="dense", success_source="simulator"), gamma=0.9)
    env.reset(seed=0)
    for _ in range(12):
        env.step(np.zeros((3, 1), np.float32))
    assert env.env.rendered == 0


def test_sparse_needs_no_progress_and_has_zero_potentials():
    for env in (CountingEnv(3), CountingWithProgress(3)):
        env = StateRewardEnv(env, RewardConfig(rule="sparse", success_source="simulator"), gamma=0.9)
        env.reset(seed=0)
        for _ in range(5):
            *_, infos = env.step(np.zeros((3, 1), np.float32))
            assert not infos["potential"].any() and not infos["next_potential"].any()


class CountingWithProgress(CountingEnv):
    """Its progress is the step count divided by the time limit of the row."""

    def reset(self, **kwargs):
        observation, infos = super().reset(**kwargs)
        return observation, {**infos, **self._progress_infos()}

    def step(self, actions):
        *rest, infos = super().step(actions)
        return *rest, {**infos, **self._progress_infos()}

    def _progress_infos(self):
        share = (self.count / (np.arange(self.num_envs) + 2)).astype(np.float32)
        return {"progress": share, "subtask": np.zeros(self.num_envs, np.int64)}


def test_cost_of_iterations_and_fractions_sum_to_one():
    torch.manual_seed(0)
    learned, state = envs(2), envs(2)
    policy = GaussianPolicy(PolicySpec(obs_dim=learned.single_observation_space.shape[0], action_dim=4))
    before = [value.clone() for value in policy.state_dict().values()]
    config = RefineConfig(rollout_steps=6, reward=RewardConfig(score_every=5))
    timings = list(time_iterations(learned, state, ProgressNet(NetConfig(views=("front",))), policy, config, rounds=2))
    learned.close(), state.close()
    assert [timing.reward for timing in timings] == ["learned", "state"] * 2
    assert all(sum(timing.phase_seconds.values()) <= timing.seconds for timing in timings)
    assert all(timing.phase_seconds["render"] == 0 for timing in timings if timing.reward == "state")
    assert all(torch.equal(a, b) for a, b in zip(before, policy.state_dict().values(), strict=True))
    cost = summarize_cost(timings)
    assert sum(share for name, share in cost.items() if name.startswith("fraction_")) == 1
    assert all(0 < cost[f"fraction_{phase}"] < 1 for phase in PHASES)


def test_ratio_is_that_of_medians():
    stages = dict.fromkeys(PHASES, 0.1)
    seconds = {"learned": (2.0, 4.0, 100.0), "state": (1.0, 2.0, 3.0)}
    timings = [
        IterationTiming(reward=name, seconds=s, phase_seconds=stages) for name, all_ in seconds.items() for s in all_
    ]
    assert summarize_cost(timings)["learned_over_state"] == 2.0
