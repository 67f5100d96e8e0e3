"""The reward from simulator state, and what a learned one costs beside it."""

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from rl_envs import CountingEnv

from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.rollout_stats import PHASES
from embodied_rm.rl.envs.state_env import StateRewardEnv
from embodied_rm.rl.iteration_cost import IterationTiming, summarize_cost, time_iterations
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.refine_config import RefineConfig
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.vec_env import TabletopVecEnv


def envs(num_envs: int) -> TabletopVecEnv:
    return TabletopVecEnv("lift_cube", num_envs, views=("front",), autoreset_mode=AutoresetMode.DISABLED)


def test_an_episode_of_the_expert_is_worth_its_success_whatever_the_way():
    """Shaping telescopes: with gamma 1 and a progress of 0 at the start, a success pays exactly its reward."""
    inner = envs(4)
    env = StateRewardEnv(inner, RewardConfig(rule="dense", success_source="simulator", score_every=3), gamma=1.0)
    _, infos = env.reset(seed=3)
    start = infos["progress"].copy()
    actor = ScriptedPolicy(inner, seed=0)
    actor.reset(np.arange(4))
    returns, ended = np.zeros(4), np.zeros(4, bool)
    for _ in range(inner.max_episode_steps - 1):
        _, reward, terminated, truncated, _ = env.step(actor.act())
        returns += np.where(ended, 0, reward)
        ended |= terminated | truncated
        if ended.all():
            break
    env.close()
    assert ended.all()
    assert np.allclose(returns, 1 - start, atol=1e-5)


def test_images_are_never_drawn_for_it():
    env = StateRewardEnv(CountingWithProgress(3), RewardConfig(rule="dense", success_source="simulator"), gamma=0.9)
    env.reset(seed=0)
    for _ in range(12):
        env.step(np.zeros((3, 1), np.float32))
    assert env.env.rendered == 0


def test_sparse_asks_nobody_how_far_the_task_is_and_tells_the_critic_nothing_of_it():
    for env in (CountingEnv(3), CountingWithProgress(3)):
        env = StateRewardEnv(env, RewardConfig(rule="sparse", success_source="simulator"), gamma=0.9)
        env.reset(seed=0)
        for _ in range(5):
            *_, infos = env.step(np.zeros((3, 1), np.float32))
            assert not infos["potential"].any() and not infos["next_potential"].any()


class CountingWithProgress(CountingEnv):
    """Its progress is the step count, as a share of the row's time limit."""

    def reset(self, **kwargs):
        observation, infos = super().reset(**kwargs)
        return observation, {**infos, **self._told()}

    def step(self, actions):
        *rest, infos = super().step(actions)
        return *rest, {**infos, **self._told()}

    def _told(self):
        share = (self.count / (np.arange(self.num_envs) + 2)).astype(np.float32)
        return {"progress": share, "subtask": np.zeros(self.num_envs, np.int64)}


def test_cost_compares_whole_iterations_and_shares_add_up():
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
    told = summarize_cost(timings)
    assert sum(share for name, share in told.items() if name.startswith("fraction_")) == 1
    assert all(0 < told[f"fraction_{stage}"] < 1 for stage in PHASES)


def test_the_ratio_is_of_medians():
    stages = dict.fromkeys(PHASES, 0.1)
    seconds = {"learned": (2.0, 4.0, 100.0), "state": (1.0, 2.0, 3.0)}
    timings = [
        IterationTiming(reward=name, seconds=s, phase_seconds=stages) for name, all_ in seconds.items() for s in all_
    ]
    assert summarize_cost(timings)["learned_over_state"] == 2.0
