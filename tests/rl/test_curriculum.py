"""Starts that fail come more often, and none of them is one that a policy is judged by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rl_envs import ImageModel, PointReachEnv

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.curriculum import FIRST_SEED, MIN_FAILURE_RATE, StartCurriculum
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.envs.state_env import StateRewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.watch.evaluate_policy import EvalResult, evaluate_policy
from embodied_rm.run_folder import NullReporter, RunFolder


def test_starts_are_drawn_by_how_often_they_fail():
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


def test_what_is_known_of_starts_outlives_episodes_that_could_not_be_stored():
    def envs() -> LearnedRewardEnv:
        env = LearnedRewardEnv(Noting(4), ImageModel(), RewardConfig(), 0.9)
        env.curriculum = StartCurriculum(20, 4, seed=0)
        env.reset(seed=0)
        return env

    one, other = envs(), envs()
    for _ in range(60):
        one.step(np.zeros((4, 2)))
    other.load_state_dict(one.state_dict(), seed=7)
    assert np.array_equal(other.curriculum._failure_rates, one.curriculum._failure_rates)
    assert other.env.seeds == other.curriculum._seeds[other.curriculum._start_of_env].tolist(), (
        "whom an outcome is put down to"
    )


class Noting(PointReachEnv):
    """Remembers with which seeds it was last reset as a whole."""

    def reset(self, *, seed=None, options=None):
        self.seeds = seed if options is None else self.seeds
        return super().reset(seed=seed, options=options)


class Listing(PointReachEnv):
    """Lists the seed of every row that was ever reset with one."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows, ends_on_success=True)
        self.begun: set[int] = set()

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.begun |= set(range(seed, seed + self.num_envs) if isinstance(seed, int) else seed)
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_start_is_one_that_a_policy_is_judged_by(seed: int):
    pool, judging = StartCurriculum(1000, num_envs=8, seed=seed), Listing(8)
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,)))
    evaluate_policy(judging, policy, episodes=20, seed=seed)
    drawn = {start for _ in range(500) for start in pool.draw(np.arange(8))}
    assert len(judging.begun) == 8 and len(drawn) > 900 and not judging.begun & drawn
    assert max(judging.begun) < FIRST_SEED <= min(drawn)


def test_a_pool_goes_on_from_where_it_was():
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


class Fated(PointReachEnv):
    """Every episode lasts three steps; it is a success if its seed is even. Nothing else reaches the goal."""

    def reset(self, *, seed=None, options=None):
        mask = self._mask(options)
        self.begun = getattr(self, "begun", [])
        if seed is not None:
            self.seeds = np.asarray(seed)
            self.begun += self.seeds[mask].tolist()
        self.age = np.where(mask, 0, getattr(self, "age", np.zeros(self.num_envs, int)))
        return super().reset(seed=None if options else 0, options=options)

    def step(self, actions):
        observation, reward, *_, infos = super().step(actions)
        self.age = self.age + 1
        over = self.age >= 3
        won = over & (self.seeds % 2 == 0)
        return observation, reward, np.zeros_like(over), over, {**infos, "success": won}


def test_starts_that_fail_in_the_envs_come_back_more_often():
    envs = Fated(16)
    env = StateRewardEnv(envs, RewardConfig(rule="sparse", success_source="simulator"), 0.9)
    env.curriculum = StartCurriculum(64, 16, seed=0)
    env.reset(seed=0)
    for _ in range(600):
        env.step(np.zeros((16, 2)))
    late = np.array(envs.begun[len(envs.begun) // 2 :]) % 2
    assert late.mean() > 0.8, "odd seeds fail, and are drawn up to ten times as often"


class Drawing(PointReachEnv):
    """Every row draws its starts from a stream of its own, as the environments in the box do; lists whence each start came,
    and where it was."""

    def __init__(self, rows: int, *, ends_on_success: bool = False) -> None:
        super().__init__(rows, ends_on_success=ends_on_success)
        self.seeds = np.full(rows, -1)
        self.streams = [np.random.default_rng()] * rows
        self.begun: list[tuple[int, float]] = []

    def reset(self, *, seed=None, options=None):
        super().reset(options=options)
        given = np.arange(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        for row in np.flatnonzero(self._mask(options)):
            if given is not None:
                self.seeds[row], self.streams[row] = given[row], np.random.default_rng(given[row])
            angle = self.streams[row].uniform(0, 2 * np.pi)
            self.position[row] = np.cos(angle), np.sin(angle)
            self.begun.append((int(self.seeds[row]), round(angle, 9)))
        return self.position.astype(np.float32), {}


@pytest.mark.parametrize("reward", [RewardConfig(), RewardConfig(rule="sparse", success_source="simulator")])
def test_no_episode_of_a_refinement_starts_where_the_policy_is_judged(reward: RewardConfig, tmp_path: Path):
    """Of a run that was cut and continued, watched after every iteration: neither a seed nor a place is shared."""
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,)))
    training, judging = Drawing(8), Drawing(8, ends_on_success=True)
    starts = 50

    def judge(policy: GaussianPolicy) -> EvalResult:
        return evaluate_policy(judging, policy, episodes=20, seed=3)

    for iterations in (2, 4):
        config = RefineConfig(
            iterations=iterations, rollout_steps=45, critic_warmup_iterations=1, start_pool_size=starts, seed=3, reward=reward,
            ppo=PPOConfig(num_minibatches=2, epochs=1),
        )  # fmt: skip
        run = RunFolder.open(tmp_path, resume=True)
        done = refine(training, policy, ImageModel(), config, run, NullReporter(), judge, evaluate_iteration=judge)
        assert len(done.log_rows) == iterations
    (seeds, places), (judged_seeds, judged_places) = (
        ({seed for seed, _ in env.begun}, {place for _, place in env.begun}) for env in (training, judging)
    )
    assert not seeds & judged_seeds and not places & judged_places
    assert len(places) == len(seeds) <= starts and min(seeds) >= FIRST_SEED, "all of them are of the pool"
    assert len(training.begun) > 60 and len(seeds) > 30
    assert len(judged_places) > len(judged_seeds) == 8, "a judged row draws on and on from one seed"
