"""Divergences in 1 % of 100,000 steps: each is detected in its step, and none is training data."""

from __future__ import annotations

from dataclasses import fields

import mujoco
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from rl_envs import ImageModel

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.learner.buffer import RolloutBuffer, collect
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, ValueCritic
from embodied_sim.backends.backend import MAX_SPEED
from embodied_sim.vec_env import SUBSTEPS_PER_STEP, TabletopVecEnv

ENVS, STEPS, CLEAN_STEPS = 64, 1563, 100
RATE = 0.01
KINDS = ("NaN position", "NaN speed", "NaN control", "huge speed", "exploding contact")


class DivergingEnvs(TabletopVecEnv):
    """Lift environments; in the first half, errors are injected just before a physics step."""

    def __init__(self, rate: float) -> None:
        super().__init__(
            "lift_cube", ENVS, views=("wrist",), image_size=16, autoreset_mode=AutoresetMode.DISABLED, threads=2
        )
        self.rate, self.random = rate, np.random.default_rng(0)
        self.kinds: list[str] = []
        self.injected, self.diverged, self.terminated = [], [], []
        self.data = mujoco.MjData(self.model)
        physics_step = self._backend.step

        def step(substeps):
            self.injected.append(self.random.random(ENVS) < self.rate * 2 * (np.arange(ENVS) < ENVS // 2))
            for row in np.flatnonzero(self.injected[-1]):
                self.inject(row, KINDS[len(self.kinds) % len(KINDS)])
            return physics_step(substeps)

        self._backend.step = step

    def step(self, actions):
        result = super().step(actions)
        self.terminated.append(result[2])
        self.diverged.append(result[4]["diverged"])
        return result

    def inject(self, row: int, kind: str) -> None:
        envs = self._backend
        self.kinds.append(kind)
        match kind:
            case "NaN position":
                envs.qpos[row, self.random.integers(self.model.nq)] = np.nan
            case "NaN speed":
                envs.qvel[row, self.random.integers(self.model.nv)] = self.random.choice([np.nan, np.inf, -np.inf])
            case "NaN control":
                envs.ctrl[row, self.random.integers(self.model.nu)] = np.nan
            case "huge speed":
                speed = MAX_SPEED * self.random.choice([1.01, -2.0, 10.0, -1e6, 1e30])
                envs.qvel[row, self.random.integers(self.model.nv)] = speed
            case "exploding contact":
                self.inject_contact(row)

    def inject_contact(self, row: int) -> None:
        """Put the cube into the hand, with a speed within the limit, such that the next step exceeds the limit."""
        envs, cube = self._backend, self.model.joint("red")
        place, motion = cube.qposadr[0] + np.arange(3), cube.dofadr[0] + np.arange(3)
        for _ in range(50):
            direction = self.random.normal(size=3)
            envs.qpos[row, place] = self.state.tool_pos[row] + self.random.uniform(-0.03, 0.03, 3)
            envs.qvel[row, motion] = 0.8 * MAX_SPEED * direction / np.linalg.norm(direction)
            if self.exceeds_limit(row):
                return
        raise AssertionError("no contact of 50 explodes")

    def exceeds_limit(self, row: int) -> bool:
        """Return whether plain MuJoCo exceeds the speed limit within the next control step of this environment."""
        data, envs = self.data, self._backend
        mujoco.mj_resetData(self.model, data)
        for name in ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat"):
            getattr(data, name)[:] = getattr(envs, name)[row]
        assert (np.abs(data.qvel) <= MAX_SPEED).all()
        for _ in range(SUBSTEPS_PER_STEP):
            mujoco.mj_step(self.model, data)
            if not (np.abs(data.qvel) <= MAX_SPEED).all():
                return True
        return False


def rollout(rate: float, steps: int) -> tuple[DivergingEnvs, RolloutBuffer]:
    envs = DivergingEnvs(rate)
    env = LearnedRewardEnv(envs, ImageModel(), RewardConfig(score_every=20), gamma=0.99)
    torch.manual_seed(0)
    policy = GaussianPolicy(PolicySpec(obs_dim=envs.single_observation_space.shape[0], action_dim=4))
    observation, _ = env.reset(seed=0)
    buffer, _ = collect(env, policy, observation, steps, torch.Generator().manual_seed(0))
    envs.close()
    assert env.stats.diverged_episodes == np.sum(envs.injected)
    return envs, buffer


def test_all_divergences_are_detected_and_masked() -> None:
    envs, buffer = rollout(RATE, STEPS)
    injected = np.array(envs.injected)
    assert injected.size >= 100_000 and 0.009 < injected.mean() < 0.011
    assert min(envs.kinds.count(kind) for kind in KINDS) > 150
    assert np.array_equal(envs.diverged, injected) and np.array_equal(envs.terminated, injected)
    assert np.array_equal(buffer.valid, ~injected)
    assert buffer.done[injected].all() and not buffer.terminated[injected].any(), "truncated, not terminated"
    for name in (
        "observation",
        "next_critic_observation",
        "action",
        "potential",
        "next_potential",
        "log_prob",
        "reward",
    ):
        assert np.isfinite(getattr(buffer, name)[buffer.valid]).all(), name
    batch = buffer.make_batch(ValueCritic(buffer.obs_dim, hidden=(16,)), gamma=0.99, lam=0.95)
    assert len(batch) == buffer.valid.sum()
    assert all(torch.isfinite(torch.as_tensor(getattr(batch, column.name))).all() for column in fields(batch))


def test_other_environments_do_not_change() -> None:
    """The other half of the environments is bit-identical to a run without divergences."""
    (_, diverging), (_, clean) = rollout(5 * RATE, CLEAN_STEPS), rollout(0.0, CLEAN_STEPS)
    assert clean.valid.all() and not diverging.valid.all()
    for name in ("observation", "next_critic_observation", "action", "next_potential", "log_prob", "reward", "done"):
        one, other = (getattr(buffer, name)[:, ENVS // 2 :] for buffer in (diverging, clean))
        assert np.array_equal(one, other), name
