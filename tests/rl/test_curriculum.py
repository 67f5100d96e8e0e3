"""Tests of the curriculum: failed starts are drawn more often, and evaluation never uses one."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from rl_envs import ImageModel, PointReachEnv

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.curriculum import FIRST_SEED, MIN_FAILURE_RATE, StartCurriculum
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv, StateRewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import RefineOptions
from embodied_rm.rl.watch.evaluate_policy import EvalResult, evaluate_policy
from embodied_rm.run_folder import NullReporter, RunFolder


def test_starts_are_drawn_by_failure_rate():
    pool = StartCurriculum(4, num_envs=1, seed=0)
    row = np.array([0])
    seeds = pool._seeds.tolist()
    for _ in range(400):
        start = seeds.index(pool.draw(row)[0])
        pool.update(row, np.array([start < 2]))
    assert (pool._failure_rates[:2] < 0.01).all() and (pool._failure_rates[2:] > 0.99).all()
    drawn = [seeds.index(pool.draw(row)[0]) for _ in range(4000)]
    share = np.bincount(drawn, minlength=4) / len(drawn)
    expected = np.array([MIN_FAILURE_RATE, MIN_FAILURE_RATE, 1, 1]) / (2 + 2 * MIN_FAILURE_RATE)
    assert np.allclose(share, expected, atol=0.03)


def test_rows_keep_their_start_until_they_are_drawn_again():
    pool = StartCurriculum(100, num_envs=3, seed=1)
    first = pool.draw(np.arange(3))
    second = pool.draw(np.array([1]))
    assert second[0] == first[0] and second[2] == first[2] and len(second) == 3


def test_failure_rates_are_restored_without_episodes():
    def envs() -> LearnedRewardEnv:
        env = LearnedRewardEnv(SeedRecordingEnv(4), ImageModel(), RewardConfig(), 0.9)
        env.curriculum = StartCurriculum(20, 4, seed=0)
        env.reset(seed=0)
        return env

    one, other = envs(), envs()
    for _ in range(60):
        one.step(np.zeros((4, 2)))
    other.load_state_dict(one.state_dict(), seed=7)
    assert np.array_equal(other.curriculum._failure_rates, one.curriculum._failure_rates)
    assert other.env.seeds == other.curriculum._seeds[other.curriculum._start_of_env].tolist(), (
        "the starts of the running episodes"
    )


class SeedRecordingEnv(PointReachEnv):
    """Stores the seeds of the last full reset."""

    def reset(self, *, seed=None, options=None):
        self.seeds = seed if options is None else self.seeds
        return super().reset(seed=seed, options=options)


class SeedListingEnv(PointReachEnv):
    """Stores the seeds of all rows of all resets."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows, ends_on_success=True)
        self.started: set[int] = set()

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.started |= set(range(seed, seed + self.num_envs) if isinstance(seed, int) else seed)
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_start_is_an_evaluation_seed(seed: int):
    pool, evaluation_env = StartCurriculum(1000, num_envs=8, seed=seed), SeedListingEnv(8)
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,)))
    evaluate_policy(evaluation_env, policy, episodes=20, seed=seed)
    drawn = {start for _ in range(500) for start in pool.draw(np.arange(8))}
    assert len(evaluation_env.started) == 8 and len(drawn) > 900 and not evaluation_env.started & drawn
    assert max(evaluation_env.started) < FIRST_SEED <= min(drawn)


def test_state_round_trip():
    one, other = StartCurriculum(50, num_envs=8, seed=3), StartCurriculum(50, num_envs=8, seed=3)
    rows = np.arange(8)
    for _ in range(5):
        one.draw(rows)
        one.update(rows, np.arange(8) < 3)
    other.load_state_dict(one.state_dict())
    for _ in range(3):
        assert one.draw(rows) == other.draw(rows)
        for pool in (one, other):
            pool.update(rows, np.arange(8) < 5)


class SeedOutcomeEnv(PointReachEnv):
    """Each episode has three steps; it is a success if and only if its seed is even."""

    def reset(self, *, seed=None, options=None):
        mask = self._mask(options)
        self.started = getattr(self, "started", [])
        if seed is not None:
            self.seeds = np.asarray(seed)
            self.started += self.seeds[mask].tolist()
        self.age = np.where(mask, 0, getattr(self, "age", np.zeros(self.num_envs, int)))
        return super().reset(seed=None if options else 0, options=options)

    def step(self, actions):
        observation, reward, *_, infos = super().step(actions)
        self.age = self.age + 1
        over = self.age >= 3
        success = over & (self.seeds % 2 == 0)
        return observation, reward, np.zeros_like(over), over, {**infos, "success": success}


def test_failed_starts_are_drawn_more_often_in_environments():
    envs = SeedOutcomeEnv(16)
    env = StateRewardEnv(envs, RewardConfig(rule="sparse", success_source="simulator"), 0.9)
    env.curriculum = StartCurriculum(64, 16, seed=0)
    env.reset(seed=0)
    for _ in range(600):
        env.step(np.zeros((16, 2)))
    late = np.array(envs.started[len(envs.started) // 2 :]) % 2
    assert late.mean() > 0.8, "odd seeds fail, and are drawn up to ten times as often"


class StreamEnv(PointReachEnv):
    """Each row draws its starts from its own random stream, as the bundled environments do; stores seed and position of
    each start."""

    def __init__(self, rows: int, *, ends_on_success: bool = False) -> None:
        super().__init__(rows, ends_on_success=ends_on_success)
        self.seeds = np.full(rows, -1)
        self.streams = [np.random.default_rng()] * rows
        self.started: list[tuple[int, float]] = []

    def reset(self, *, seed=None, options=None):
        super().reset(options=options)
        given = np.arange(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        for row in np.flatnonzero(self._mask(options)):
            if given is not None:
                self.seeds[row], self.streams[row] = given[row], np.random.default_rng(given[row])
            angle = self.streams[row].uniform(0, 2 * np.pi)
            self.position[row] = np.cos(angle), np.sin(angle)
            self.started.append((int(self.seeds[row]), round(angle, 9)))
        return self.position.astype(np.float32), {}


@pytest.mark.parametrize("reward", [RewardConfig(), RewardConfig(rule="sparse", success_source="simulator")])
def test_training_and_evaluation_share_no_start(reward: RewardConfig, tmp_path: Path):
    """A resumed run with evaluation after each iteration: no seed and no position is shared."""
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,)))
    training, evaluation_env = StreamEnv(8), StreamEnv(8, ends_on_success=True)
    starts = 50

    def evaluate(policy: GaussianPolicy) -> EvalResult:
        return evaluate_policy(evaluation_env, policy, episodes=20, seed=3)

    for iterations in (2, 4):
        config = RefineConfig(
            iterations=iterations,
            rollout_steps=45,
            critic_warmup_iterations=1,
            start_pool_size=starts,
            seed=3,
            reward=reward,
            ppo=PPOConfig(num_minibatches=2, epochs=1),
        )
        run = RunFolder.open(tmp_path, resume=True)
        result = refine(
            training,
            copy.deepcopy(policy),
            ImageModel(),
            config,
            run,
            NullReporter(),
            evaluate,
            RefineOptions(evaluate_iteration=evaluate),
        )
        assert len(result.log_rows) == iterations
    (seeds, positions), (eval_seeds, eval_positions) = (
        ({seed for seed, _ in env.started}, {position_id for _, position_id in env.started})
        for env in (training, evaluation_env)
    )
    assert not seeds & eval_seeds and not positions & eval_positions
    assert len(positions) == len(seeds) <= starts and min(seeds) >= FIRST_SEED, "all of them are from the pool"
    assert len(training.started) > 60 and len(seeds) > 30
    assert len(eval_positions) > len(eval_seeds) == 8, "an evaluation row draws all its starts from one seed"
