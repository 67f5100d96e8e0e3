"""A critic with the full state gets the final state of an episode, not the first one of the next."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_envs import CountingEnv, LookupModel

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import make_reward_env
from embodied_rm.rl.learner.buffer import RolloutBuffer, collect
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, ValueCritic

ROWS, STEPS, EPISODES, GAMMA = 6, 40, 30, 0.9


class FullStateEnv(CountingEnv):
    """Its observation is the step, its state (row, episode, step, 100), in the same array at every step.

    Every third episode ends after its second step: by failure in even rows, by success in odd ones.
    """

    def reset(self, *, seed=None, options=None):
        full, infos = super().reset(seed=seed, options=options)
        return full[:, 2:].copy(), {**infos, "state": self._full_state()}

    def step(self, actions):
        full, reward, _, timed_out, infos = super().step(actions)
        early = (self.episode % 3 == 2) & (self.count == 2)
        rows = np.arange(self.num_envs)
        state = self._full_state()
        state[infos["diverged"]] = np.nan
        infos |= {"success": early & (rows % 2 == 1), "state": state}
        return full[:, 2:].copy(), reward, early & (rows % 2 == 0), timed_out, infos

    def _full_state(self):
        if not hasattr(self, "state"):
            self.state = np.zeros((self.num_envs, 4))
        self.state[:] = np.stack([np.arange(self.num_envs), self.episode, self.count, np.full(self.num_envs, 100)], 1)
        return self.state


class StateCritic(ValueCritic):
    """The value of a state is its step plus 100 per previous episode."""

    def forward(self, observation: torch.Tensor, potential: torch.Tensor) -> torch.Tensor:
        return observation[:, 2] + 100 * observation[:, 1]


def diverges(row: int, episode: int, step: int) -> bool:
    return row == 4 and episode == 1 and step == 3


@pytest.fixture(params=["model", "simulator"])
def rollout(request: pytest.FixtureRequest) -> RolloutBuffer:
    """A rollout with success from the model, from the third step on, or from the simulator."""
    shape = (ROWS, EPISODES, ROWS + 3)
    done = np.zeros(shape)
    done[:, ::2, 3:] = 1
    model = LookupModel(np.zeros(shape, np.float32), done, np.ones(shape, bool))
    config = RewardConfig(rule="sparse", success_source=request.param, success_patience=1)
    env = make_reward_env(FullStateEnv(ROWS, diverges), model, config, GAMMA)
    policy = GaussianPolicy(PolicySpec(obs_dim=1, action_dim=1, hidden=(4,)))
    first, _ = env.reset()
    assert env.critic_obs_dim == 4
    buffer, _ = collect(env, policy, first, STEPS, torch.Generator().manual_seed(0))
    failed = buffer.terminated & (buffer.reward == 0)
    for kind in (failed, buffer.reward == 1, buffer.done & ~buffer.terminated & buffer.valid, ~buffer.valid):
        assert kind[:-1].any(), "failures, successes, time limits, a divergence"
    return buffer


def test_critic_observes_true_next_states(
    rollout: RolloutBuffer,
) -> None:
    for row in range(ROWS):
        episode = step = 0
        for t in range(STEPS):
            assert rollout.observation[t, row].tolist() == [step]
            assert rollout.critic_observation[t, row].tolist() == [row, episode, step, 100]
            step += bool(rollout.valid[t, row])  # the last valid state replaces a diverged one
            assert rollout.next_critic_observation[t, row].tolist() == [row, episode, step, 100]
            if rollout.done[t, row]:
                episode, step = episode + 1, 0


def test_time_limits_bootstrap_from_the_final_state_and_ends_do_not(rollout: RolloutBuffer) -> None:
    """With lambda 0, the target of the critic is reward + gamma V(next)."""
    targets = rollout.make_batch(StateCritic(4, (4,)), GAMMA, lam=0.0).target.reshape(-1)
    expected = []
    for t in range(STEPS):
        for row in np.flatnonzero(rollout.valid[t]):
            _, episode, step, _ = rollout.critic_observation[t, row].tolist()
            follows = 0.0 if rollout.terminated[t, row] else step + 1 + 100 * episode
            expected.append(float(rollout.reward[t, row]) + GAMMA * follows)
    np.testing.assert_allclose(targets.numpy(), expected, rtol=1e-5)
