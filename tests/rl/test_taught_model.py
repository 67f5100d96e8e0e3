"""Refinement whose reward model changes between iterations: what it learns, restarts and resumes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rl_envs import ImageModel, KnownState, PointReachEnv, make_output
from test_refine import CONFIG, evaluate, weak_policy
from test_resume import play

from embodied_rm.errors import UserError
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.refine import RefineResult, refine
from embodied_rm.rl.refine_checkpoint import PROGRESS_FILE
from embodied_rm.rl.refine_options import RefineOptions
from embodied_rm.rl.stop_rules import has_converged
from embodied_rm.rl.watch.log_rows import read_rows
from embodied_rm.run_folder import NullReporter, RunFolder


class DeceivedModel(ImageModel):
    """Takes every state for a success: the image does not matter."""

    def step(self, state: KnownState, views: object) -> object:
        output, state = super().step(state, views)
        ones = np.ones(len(output), np.float32)
        return make_output(ones, ones.astype(bool), ones), replace(state, phi=ones)


@dataclass
class ScheduledTeacher:
    """Another model every few iterations."""

    models: list[RewardModel]
    every: int

    def model_at(self, iteration: int) -> RewardModel:
        return self.models[min(iteration // self.every, len(self.models) - 1)]

    def first_iteration(self, iteration: int) -> int:
        return max(1, iteration // self.every) * self.every


def run_refine(folder: Path, model: RewardModel, teacher: ScheduledTeacher | None) -> RefineResult:
    options, config = RefineOptions(teacher=teacher), replace(CONFIG, iterations=17)
    run = RunFolder.open(folder, resume=True)
    return refine(PointReachEnv(64), weak_policy(), model, config, run, NullReporter(), evaluate, options)


def test_a_model_that_is_taught_after_being_deceived_leads_to_success(tmp_path: Path) -> None:
    deceived = DeceivedModel()
    fixed = run_refine(tmp_path / "fixed", deceived, None)
    assert fixed.refined_eval.rate < 0.5, "a model that always believes teaches nothing"
    assert len(fixed.log_rows) < 10, "it believes, so that training stops early"
    taught = run_refine(tmp_path / "taught", deceived, ScheduledTeacher([deceived, ImageModel()], every=4))
    assert taught.refined_eval.rate > 0.9
    believed = [row["predicted_success"] for row in taught.log_rows]
    assert believed[3] == 1 and believed[5] < 0.9, "from iteration 4 on, the other model pays"


def test_a_taught_model_is_not_asked_about_each_view(tmp_path: Path) -> None:
    teacher = ScheduledTeacher([ImageModel(), ImageModel()], every=2)
    with pytest.raises(UserError, match=r"all views together: set reward.success_in_each_view=false"):
        play(tmp_path, "lift_cube", RewardConfig(success_in_each_view=True), teacher=teacher)


def test_success_counts_from_the_first_round_on_that_the_model_belongs_to() -> None:
    rows = [{"success": 1.0, "episodes": 10, "has_full_episodes": True} for _ in range(8)]
    config = replace(CONFIG, stop_patience=3)
    teacher = ScheduledTeacher([ImageModel(), ImageModel()], every=4)
    assert has_converged(rows[:5], config)
    assert not has_converged(rows[:4], config, teacher), "no round was taught yet"
    assert not has_converged(rows[:6], config, teacher)
    assert has_converged(rows[:7], config, teacher)


def test_episodes_start_anew_with_the_threshold_of_the_new_model() -> None:
    model = ImageModel()
    env = LearnedRewardEnv(PointReachEnv(2), model, RewardConfig(success_patience=1), 0.95)
    env.reset(seed=0)
    env.step(np.zeros((2, 2), np.float32))
    other = DeceivedModel()
    other.capabilities = replace(model.capabilities, success_threshold=1.0)
    env.replace_model(other)
    env.reset(seed=1)
    *_, infos = env.step(np.zeros((2, 2), np.float32))
    assert infos["potential"].tolist() == [0.0, 0.0] and infos["next_potential"].tolist() == [1.0, 1.0]
    assert infos["predicted_success"].all()


def test_a_resumed_run_knows_when_all_episodes_restarted(tmp_path: Path) -> None:
    """An episode has seven rollouts: after a restart, none can fail in the first six of them."""
    torch.manual_seed(0)
    models = [ProgressNet(NetConfig(views=("front",))).eval() for _ in range(2)]
    reward = RewardConfig(success_patience=2, success_threshold=0.2)

    def run(folder: Path, remaining: int = 10**9) -> tuple[list[tuple[int, bool]], dict[str, torch.Tensor]]:
        teacher = ScheduledTeacher(models, every=5)
        tensors = play(folder, "lift_cube", reward, remaining, teacher=teacher, iterations=13)
        rows = read_rows(folder / PROGRESS_FILE)
        return [(row["restart_iteration"], row["has_full_episodes"]) for row in rows], tensors

    whole, weights = run(tmp_path / "whole")
    assert whole == [(0, False)] * 5 + [(5, False)] * 6 + [(5, True)] * 2
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "resumed", int(9 * 6.5))
    resumed, resumed_weights = run(tmp_path / "resumed")
    assert resumed == whole and all(torch.equal(resumed_weights[name], weights[name]) for name in weights)


@pytest.mark.parametrize("iterations", [(1.4, 1.2), (2.0, 1.5)])
def test_a_resumed_run_with_other_models_is_bit_identical(iterations: tuple[float, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    models = [ProgressNet(NetConfig(views=("front",))).eval() for _ in range(3)]
    reward = RewardConfig(success_patience=2, success_threshold=0.2)

    def run(folder: Path, remaining: int = 10**9) -> dict[str, torch.Tensor]:
        return play(folder, "lift_cube", reward, remaining, teacher=ScheduledTeacher(models, every=2))

    uninterrupted = run(tmp_path / "uninterrupted")
    for count in iterations:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "resumed", int(9 * count))
    resumed = run(tmp_path / "resumed")
    assert uninterrupted.keys() == resumed.keys()
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)
