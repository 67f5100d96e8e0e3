"""Take-over: when a helper acts, what is learned from it, and that its successes are not those of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from rl_envs import ImageModel, PointReachEnv
from test_resume import play
from test_rlpd import CONFIG, make_learner, make_rollout, reach_transitions, transitions

from embodied_rm.errors import UserError
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.curriculum import StartCurriculum
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.envs.takeover import Takeover, TakeoverConfig
from embodied_rm.rl.learner.buffer import collect
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.off_policy.off_policy_config import RLPDConfig
from embodied_rm.rl.off_policy.replay_buffer import helped_transitions
from embodied_rm.rl.refine import RefineResult, refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import RefineOptions
from embodied_rm.rl.stop_rules import has_converged
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.tabletop.expert_helper import ExpertHelper
from embodied_sim.vec_env import TabletopVecEnv

SMALL = RLPDConfig(batch_size=8, pretraining_updates=2, updates_per_step=0.2, critic_hidden_sizes=(8,), num_critics=2)


class PointHelper:
    """Moves the point of `PointReachEnv` to the origin; stores where it began."""

    def __init__(self, envs: PointReachEnv) -> None:
        self.envs, self.began = envs, list[int]()

    def reset(self, rows: np.ndarray) -> None:
        self.began += rows.tolist()

    def act(self, rows: np.ndarray) -> np.ndarray:
        return -10 * self.envs.position[rows]  # beyond the bounds of an action, far away

    def has_finished(self, rows: np.ndarray) -> np.ndarray:
        return np.zeros(len(rows), bool)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        assert not state


def still_policy() -> GaussianPolicy:
    """Return a policy that hardly moves."""
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, hidden=(4,), log_std_init=-3.0))
    torch.nn.init.zeros_(policy.mlp[-1].weight)
    torch.nn.init.zeros_(policy.mlp[-1].bias)
    return policy


def helped_env(num_envs: int, **config: float) -> LearnedRewardEnv:
    envs = PointReachEnv(num_envs)
    env = LearnedRewardEnv(envs, ImageModel(), RewardConfig(success_patience=3), 0.95)
    env.takeover = Takeover(TakeoverConfig(**config), PointHelper(envs), num_envs)  # type: ignore[arg-type]
    env.reset(seed=0)
    return env


def test_help_begins_after_steps_without_a_gain_and_ends_with_the_episode() -> None:
    envs = PointReachEnv(2)
    takeover = Takeover(TakeoverConfig(stall_steps=3, min_gain=0.1), PointHelper(envs), 2)
    takeover.begin(np.arange(2), np.array([0.5, 0.5]))
    acts = []
    # Row 0 falls and returns: no gain. Row 1 gains 0.1 in two steps.
    for first, second in [(0.3, 0.5), (0.5, 0.55), (0.59, 0.61), (0.59, 0.61), (0.9, 0.61), (0.9, 0.7)]:
        takeover.replace(np.zeros((2, 2)), -1, 1)
        acts.append(takeover.acts.tolist())
        takeover.update(np.array([first, second]))
    assert acts == [[False, False]] * 3 + [[True, False]] * 3
    takeover.replace(np.zeros((2, 2)), -1, 1)
    assert takeover.acts.tolist() == [True, True], "0.7 is less than 0.1 above 0.61"
    takeover.begin(np.array([0]), np.array([0.0]))
    assert takeover.acts.tolist() == takeover.has_helped.tolist() == [False, True]


def test_the_policy_acts_again_after_the_largest_number_of_steps() -> None:
    takeover = Takeover(TakeoverConfig(stall_steps=2, max_steps=3), PointHelper(PointReachEnv(1)), 1)
    acts = []
    for _ in range(12):
        takeover.replace(np.zeros((1, 2)), -1, 1)
        acts.append(bool(takeover.acts[0]))
        takeover.update(np.zeros(1))
    assert acts == [False, False, True, True, True] * 2 + [False, False]
    assert takeover.has_helped[0]


def test_the_policy_acts_again_where_the_helper_has_finished() -> None:
    helper = PointHelper(PointReachEnv(2))
    helper.has_finished = lambda rows: rows == 1  # type: ignore[method-assign]
    takeover = Takeover(TakeoverConfig(stall_steps=2), helper, 2)
    acts = []
    for _ in range(6):
        takeover.replace(np.zeros((2, 2)), -1, 1)
        acts.append(takeover.acts.tolist())
        takeover.update(np.zeros(2))
    assert acts == [[False, False]] * 2 + [[True, True]] + [[True, False]] * 2 + [[True, True]]
    assert helper.began == [0, 1, 1]


def test_the_rollout_has_the_executed_actions_and_the_mask_of_help() -> None:
    env = helped_env(3, stall_steps=2)
    start = env.env.position.copy()
    policy, generator = still_policy(), torch.Generator().manual_seed(0)
    rollout, _ = collect(env, policy, start.astype(np.float32), 24, generator)
    assert rollout.helped.any(axis=0).all() and not rollout.helped[:2].any()
    ended = np.cumsum(rollout.done, axis=0) - rollout.done > 0
    moved = rollout.next_critic_observation - rollout.critic_observation
    assert np.allclose(moved, 0.15 * np.clip(rollout.action, -1, 1), atol=1e-6)
    assert (np.abs(rollout.action[rollout.helped]).max(axis=1) > 0.4).any() and np.abs(rollout.action).max() <= 1
    assert (np.abs(rollout.action[~rollout.helped & ~ended]) < 0.3).all(), "the policy's own actions"
    done = np.flatnonzero(rollout.done.any(axis=1))
    assert 0 < done[0] < 20
    for step, row in zip(*np.nonzero(rollout.done[:20]), strict=True):
        assert rollout.helped[step + 1 : step + 4, row].tolist() == [False, False, True], (
            "a new episode is the policy's"
        )
    added = helped_transitions(rollout)
    assert len(added) == rollout.helped.sum() and np.array_equal(added.action, rollout.action[rollout.helped])


def test_success_with_help_is_no_success_of_the_policy() -> None:
    env = helped_env(4, stall_steps=1)
    env.curriculum = StartCurriculum(6, 4, seed=0)
    env.reset(seed=0)
    episodes = 0
    for _ in range(14):
        *_, infos = env.step(np.zeros((4, 2), np.float32))
        episodes += int(infos["success"].sum())
    stats = env.pop_stats()
    assert episodes and stats.episodes == stats.helped_episodes > 0
    assert stats.successes == stats.predicted_successes == stats.simulator_successes == stats.hover_episodes == 0
    rates = env.curriculum.pool.failure_rates
    assert (rates >= 0.5).all() and (rates > 0.5).any(), "a start that needs help is a failed one"


def run_helped(folder: Path, config: RefineConfig) -> RefineResult:
    envs, run = PointReachEnv(8), RunFolder.open(folder, resume=True)
    options = RefineOptions(recorded=reach_transitions(), helper=PointHelper(envs))
    return refine(envs, still_policy(), ImageModel(), config, run, NullReporter(), None, options)


def test_a_refinement_does_not_stop_at_successes_of_the_helper(tmp_path: Path) -> None:
    config = replace(CONFIG, iterations=6, rollout_steps=20, takeover=TakeoverConfig(stall_steps=2), rlpd=SMALL)
    result = run_helped(tmp_path, config)
    rows = result.log_rows
    assert len(rows) == 6 and not has_converged(list(rows), config)
    assert sum(row["helped_episodes"] for row in rows) > 0.8 * sum(row["episodes"] for row in rows) > 20
    assert all(row["success"] <= 1 - row["helped_episodes"] / row["episodes"] for row in rows)


def test_what_the_helper_did_counts_as_recorded_too() -> None:
    learner, rollout = make_learner(transitions(8, seed=4), updates_per_step=0.1, batch_size=8), make_rollout()
    rollout.helped[3:, 1] = rollout.helped[2, :2] = True  # the transition [2, 1] diverged
    learner.update(rollout, train_policy=False)
    assert learner.num_recorded == 8 + 3
    assert set(learner._recorded.reward[8:].tolist()) == {6.0, 10.0, 13.0}
    restored = make_learner(transitions(8, seed=4), updates_per_step=0.1, batch_size=8)
    for _ in range(2):
        restored.load_state_dict(learner.state_dict(), "x")
    assert restored.num_recorded == 11
    first, second = (each.update(make_rollout(first=50), train_policy=True) for each in (learner, restored))
    assert first == second
    apart = make_learner(transitions(8, seed=4), updates_per_step=0.1, batch_size=8, dynamics_gap_coef=0.1)
    apart.update(rollout, train_policy=False)
    assert apart.num_recorded == 8, "the recordings are of another world"


def test_a_resumed_refinement_with_help_is_bit_identical(tmp_path: Path) -> None:
    settings = {
        "algorithm": "rlpd",
        "rlpd": SMALL,
        "takeover": TakeoverConfig(stall_steps=2),
        "start_pool_size": 6,
        "helper_of": ExpertHelper,
    }
    reward = RewardConfig(rule="dense", success_source="simulator")
    uninterrupted = play(tmp_path / "uninterrupted", "lift_cube", reward, **settings)
    for steps in (13, 20):
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path / "resumed", "lift_cube", reward, steps, **settings)
    resumed = play(tmp_path / "resumed", "lift_cube", reward, **settings)
    assert any("helper.waypoint_index" in name for name in uninterrupted) and len(uninterrupted["helped.reward"]) > 20
    assert uninterrupted.keys() == resumed.keys()
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)


@pytest.mark.parametrize("task", ["lift_cube", "open_drawer", "push_to_zone"])
def test_the_expert_succeeds_from_where_it_takes_over(task: str) -> None:
    """Fifteen steps of random motion come first."""
    envs = TabletopVecEnv(task, 8, autoreset_mode=AutoresetMode.DISABLED, views=())
    envs.reset(seed=3)
    helper, rng, rows = ExpertHelper(envs), np.random.default_rng(0), np.arange(8)
    action, success = np.zeros((8, 4)), np.zeros(8, bool)
    for step in range(envs.max_episode_steps):
        if step == 15:
            assert not success.any()
            helper.reset(rows)
        if step < 15 and step % 4 == 0:
            action = rng.uniform(-1, 1, (8, 4))
        *_, infos = envs.step((action if step < 15 else helper.act(rows)).clip(-1, 1).astype(np.float32))
        success |= infos["success"]
    envs.close()
    assert success.mean() > 0.8


def test_learners_that_cannot_use_help_say_why(tmp_path: Path) -> None:
    takeover = TakeoverConfig(stall_steps=5)
    for algorithm in ("ppo", "hnpg"):
        with pytest.raises(UserError, match=rf"takeover\.stall_steps=5 needs algorithm=rlpd: .*{algorithm} is that of"):
            RefineConfig(algorithm=algorithm, takeover=takeover)  # type: ignore[arg-type]
    sparse = RewardConfig(rule="sparse", success_source="simulator")
    with pytest.raises(UserError, match=r"needs progress, which reward\.rule=sparse does not read"):
        RefineConfig(algorithm="rlpd", reward=sparse, takeover=takeover)
    with pytest.raises(UserError, match=r"takeover\.min_gain must be > 0, got 0"):
        TakeoverConfig(min_gain=0)
    with pytest.raises(UserError, match=r"takeover\.max_steps must be >= 0, got -1"):
        TakeoverConfig(max_steps=-1)
    with pytest.raises(UserError, match=r"takeover\.stall_steps=0 and a helper belong together"):
        run_helped(tmp_path, CONFIG)
