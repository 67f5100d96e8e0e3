"""The alarm: rings for planted hacks, keeps still for honest runs, and says what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_envs import ImageModel, PointReachEnv

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.watch.evaluate_policy import EvalResult, evaluate_policy
from embodied_rm.rl.watch.hacking_monitor import WINDOW_ITERATIONS, detect_reward_hacking
from embodied_rm.run_folder import NullReporter, RunFolder

SPEC = PolicySpec(obs_dim=2, action_dim=2, hidden=(32,), log_std_init=-0.5)
CONFIG = RefineConfig(iterations=10, rollout_steps=20, reward=RewardConfig(success_patience=2),
                      ppo=PPOConfig(gamma=0.95, num_minibatches=8))  # fmt: skip


def row(episodes: int, learned: int, true: int, watched: int = 60, **dead: int) -> dict:
    return {
        "episodes": episodes, "predicted_successes": learned, "eval_successes": true, "eval_episodes": watched,
        "num_scores": 100, "dead_views": dead, "has_full_episodes": True, "verification_episodes": 0, "claimed_successes": 0, "false_claims": 0,
    }  # fmt: skip


def checked(episodes: int, unfounded: int) -> dict:
    """Of episodes whose ends tell nothing."""
    return {**row(60, 0, 60), "has_full_episodes": False, "verification_episodes": episodes, "claimed_successes": episodes, "false_claims": unfounded}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_verdicts_that_the_simulator_shares_never_ring(counts):
    assert detect_reward_hacking([row(60, said, said) for said in counts]) is None
    assert detect_reward_hacking([row(60, said, 60) for said in counts]) is None, "a model that is late is no hack"


@given(st.lists(st.integers(0, 60), min_size=WINDOW_ITERATIONS, max_size=8))
def test_without_watched_episodes_there_is_nothing_to_compare(counts):
    assert detect_reward_hacking([row(60, said, 0, watched=0) for said in counts]) is None


def test_verdicts_that_it_does_not_share_ring_at_once_when_they_are_many():
    assert detect_reward_hacking([row(60, 5, 0)]) is None, "five of sixty may be chance"
    told = "40 of 60 training episodes are a success in the eyes of the model, 0 of 60 watched ones in those"
    assert str(detect_reward_hacking([row(60, 40, 0)])).startswith(told)
    assert detect_reward_hacking([row(60, 30, 25)]) is None
    assert detect_reward_hacking([row(60, 50, 25)] * WINDOW_ITERATIONS) is not None


def test_success_that_rises_for_the_model_and_falls_for_the_simulator_rings_though_both_are_near():
    agreed, parted = [row(100, 50, 48)] * WINDOW_ITERATIONS, [row(100, 72, 30)] * WINDOW_ITERATIONS
    assert detect_reward_hacking(parted) is None, "72 % and half are a tenth apart by chance"
    told = detect_reward_hacking([*agreed, row(100, 60, 40), *parted])
    assert told is not None and "risen, from 150 of 300" in told and "fallen, from 48 of 60" in told
    assert (
        detect_reward_hacking([*parted, *agreed]) is None
        and detect_reward_hacking([*agreed, *[row(100, 72, 48)] * WINDOW_ITERATIONS]) is None
    )
    assert detect_reward_hacking([*agreed, *[row(100, 50, 30)] * WINDOW_ITERATIONS]) is None, (
        "both fell, or none of them rose"
    )


def test_claims_that_the_simulator_does_not_bear_out_ring_at_once_when_they_are_many():
    assert (
        detect_reward_hacking([checked(16, 7)] * WINDOW_ITERATIONS) is not None
        and detect_reward_hacking([checked(16, 7)]) is None
    ), "seven of 16 may be chance"
    told = detect_reward_hacking([checked(16, 9)])
    assert told is not None and "in 9 of 16 episodes beside the training the model saw a success" in told
    assert detect_reward_hacking([checked(16, 3)] * WINDOW_ITERATIONS) is None, "now and then an honest model is wrong"
    assert detect_reward_hacking([checked(16, 9), *[checked(16, 0)] * WINDOW_ITERATIONS]) is None, "it is over"


def test_iterations_in_which_only_successes_can_have_ended_do_not_ring():
    early = {**row(60, 60, 0), "has_full_episodes": False}
    assert detect_reward_hacking([early] * WINDOW_ITERATIONS) is None
    assert detect_reward_hacking([early] * WINDOW_ITERATIONS + [row(60, 40, 0)]) is not None


def test_a_dead_camera_is_named():
    told = detect_reward_hacking([row(60, 0, 0, front=80, wrist=0)])
    assert told is not None and "view front showed one color in 80 of 100" in told
    assert detect_reward_hacking([row(60, 0, 0, front=40, wrist=0)]) is None


class Fooled(ImageModel):
    """Says "done" of every point that is far to the right."""

    def step(self, memory, views):
        judged, after = super().step(memory, views)
        right = views.frames[:, 0, 0, 4, 0] > 0
        return replace(judged, success=right.astype(np.float32), progress=np.maximum(judged.progress, right)), after


class Marked(PointReachEnv):
    """A hidden patch that shows when the point is far to the right."""

    def render_views(self, rows):
        frames = super().render_views(rows)
        frames[:, 0, 0, 4, 0] = 255 * (self.position[rows, 0] > 0.7)
        return frames


class Blinded(PointReachEnv):
    def render_views(self, rows):
        return np.zeros_like(super().render_views(rows))


def alarms(env: PointReachEnv, model: ImageModel, seed: int, folder: Path) -> list[int]:
    """Iterations that rang."""
    torch.manual_seed(seed)

    def judge(policy: GaussianPolicy) -> EvalResult:
        return evaluate_policy(PointReachEnv(64, ends_on_success=True), policy, 64, seed=7)

    run, config = RunFolder.open(folder), replace(CONFIG, seed=seed)
    return refine(env, GaussianPolicy(SPEC), model, config, run, NullReporter(), judge, judge).metrics()["alarms"]


@pytest.mark.parametrize("seed", range(3))
def test_planted_hacks_ring_before_a_tenth_of_the_run_and_honest_runs_do_not(seed: int, tmp_path: Path) -> None:
    tenth = CONFIG.iterations // 10
    assert min(alarms(Marked(64), Fooled(), seed, tmp_path / "patch")) <= tenth
    assert min(alarms(Blinded(64), ImageModel(), seed, tmp_path / "blind")) <= tenth
    assert alarms(PointReachEnv(64), ImageModel(), seed, tmp_path / "honest") == []
