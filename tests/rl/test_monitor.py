"""Tests of the alarm: it fires for planted hacks and not for honest runs."""

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
from embodied_rm.rl.refine_options import RefineOptions
from embodied_rm.rl.watch.evaluate_policy import EvalResult, evaluate_policy
from embodied_rm.rl.watch.hacking_monitor import WINDOW_ITERATIONS, detect_reward_hacking
from embodied_rm.run_folder import NullReporter, RunFolder

SPEC = PolicySpec(obs_dim=2, action_dim=2, hidden=(32,), log_std_init=-0.5)
CONFIG = RefineConfig(
    iterations=10,
    rollout_steps=20,
    reward=RewardConfig(success_patience=2),
    ppo=PPOConfig(gamma=0.95, num_minibatches=8),
)


def row(episodes: int, learned: int, true: int, eval_episodes: int = 60, **dead: int) -> dict:
    return {
        "episodes": episodes,
        "predicted_successes": learned,
        "eval_successes": true,
        "eval_episodes": eval_episodes,
        "num_scores": 100,
        "dead_views": dead,
        "has_full_episodes": True,
        "verification_episodes": 0,
        "claimed_successes": 0,
        "false_claims": 0,
    }


def verified(episodes: int, false_claims: int) -> dict:
    """Return a row with verification episodes and without full training episodes."""
    return {
        **row(60, 0, 60),
        "has_full_episodes": False,
        "verification_episodes": episodes,
        "claimed_successes": episodes,
        "false_claims": false_claims,
    }


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_no_alarm_if_the_simulator_agrees(counts):
    assert detect_reward_hacking([row(60, predicted, predicted) for predicted in counts]) is None
    assert detect_reward_hacking([row(60, predicted, 60) for predicted in counts]) is None, (
        "a model that is late is no hack"
    )


@given(st.lists(st.integers(0, 60), min_size=WINDOW_ITERATIONS, max_size=8))
def test_no_alarm_without_evaluation_episodes(counts):
    assert detect_reward_hacking([row(60, predicted, 0, eval_episodes=0) for predicted in counts]) is None


def test_alarm_if_the_simulator_disagrees():
    assert detect_reward_hacking([row(60, 5, 0)]) is None, "five of sixty may be chance"
    alarm = "40 of 60 training episodes are a success according to the model, 0 of 60 evaluation episodes according"
    assert str(detect_reward_hacking([row(60, 40, 0)])).startswith(alarm)
    assert detect_reward_hacking([row(60, 30, 25)]) is None
    assert detect_reward_hacking([row(60, 50, 25)] * WINDOW_ITERATIONS) is not None


def test_alarm_for_opposite_trends():
    agreed, parted = [row(100, 50, 48)] * WINDOW_ITERATIONS, [row(100, 72, 30)] * WINDOW_ITERATIONS
    assert detect_reward_hacking(parted) is None, "72 % and half are a tenth apart by chance"
    alarm = detect_reward_hacking([*agreed, row(100, 60, 40), *parted])
    assert alarm is not None and "risen, from 150 of 300" in alarm and "fallen, from 48 of 60" in alarm
    assert (
        detect_reward_hacking([*parted, *agreed]) is None
        and detect_reward_hacking([*agreed, *[row(100, 72, 48)] * WINDOW_ITERATIONS]) is None
    )
    assert detect_reward_hacking([*agreed, *[row(100, 50, 30)] * WINDOW_ITERATIONS]) is None, (
        "both fell, or none of them rose"
    )


def test_alarm_for_false_claims():
    assert (
        detect_reward_hacking([verified(16, 7)] * WINDOW_ITERATIONS) is not None
        and detect_reward_hacking([verified(16, 7)]) is None
    ), "seven of 16 may be chance"
    alarm = detect_reward_hacking([verified(16, 9)])
    assert alarm is not None and "in 9 of 16 verification episodes the model predicted a success" in alarm
    assert detect_reward_hacking([verified(16, 3)] * WINDOW_ITERATIONS) is None, "now and then an honest model is wrong"
    assert detect_reward_hacking([verified(16, 9), *[verified(16, 0)] * WINDOW_ITERATIONS]) is None, (
        "the last window has none"
    )


def test_rows_without_full_episodes_are_ignored():
    early = {**row(60, 60, 0), "has_full_episodes": False}
    assert detect_reward_hacking([early] * WINDOW_ITERATIONS) is None
    assert detect_reward_hacking([early] * WINDOW_ITERATIONS + [row(60, 40, 0)]) is not None


def test_alarm_for_a_dead_camera():
    alarm = detect_reward_hacking([row(60, 0, 0, front=80, wrist=0)])
    assert alarm is not None and "view front showed one color in 80 of 100" in alarm
    assert detect_reward_hacking([row(60, 0, 0, front=40, wrist=0)]) is None


class FooledModel(ImageModel):
    """Predicts success for points far to the right."""

    def step(self, state, views):
        output, after = super().step(state, views)
        right = views.frames[:, 0, 0, 4, 0] > 0
        return replace(output, success=right.astype(np.float32), progress=np.maximum(output.progress, right)), after


class MarkedEnv(PointReachEnv):
    """Its image has a patch if the point is far to the right."""

    def render_views(self, rows):
        frames = super().render_views(rows)
        frames[:, 0, 0, 4, 0] = 255 * (self.position[rows, 0] > 0.7)
        return frames


class BlindEnv(PointReachEnv):
    def render_views(self, rows):
        return np.zeros_like(super().render_views(rows))


def alarms(env: PointReachEnv, model: ImageModel, seed: int, folder: Path) -> list[int]:
    """Return the iterations with an alarm."""
    torch.manual_seed(seed)

    def evaluate(policy: GaussianPolicy) -> EvalResult:
        return evaluate_policy(PointReachEnv(64, ends_on_success=True), policy, 64, seed=7)

    run, config = RunFolder.open(folder), replace(CONFIG, seed=seed)
    options = RefineOptions(evaluate_iteration=evaluate)
    return refine(env, GaussianPolicy(SPEC), model, config, run, NullReporter(), evaluate, options).metrics()["alarms"]


@pytest.mark.parametrize("seed", range(3))
def test_planted_hacks_are_detected_within_a_tenth_of_the_run(seed: int, tmp_path: Path) -> None:
    tenth = CONFIG.iterations // 10
    assert min(alarms(MarkedEnv(64), FooledModel(), seed, tmp_path / "patch")) <= tenth
    assert min(alarms(BlindEnv(64), ImageModel(), seed, tmp_path / "blind")) <= tenth
    assert alarms(PointReachEnv(64), ImageModel(), seed, tmp_path / "honest") == []


def test_short_rollouts_without_their_failures_are_no_alarm() -> None:
    """Four rollouts make an episode: 60 failures end together, and 20 successes in each of the three between them."""
    rows = [row(60, 0, 30), *[row(20, 20, 30)] * 3] * 4
    assert detect_reward_hacking(rows) is not None and detect_reward_hacking(rows, episode_iterations=4) is None
    assert detect_reward_hacking([row(20, 20, 30)] * 3, episode_iterations=4) is None, "too early to tell"
