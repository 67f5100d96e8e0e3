"""Everything that decides "done" uses one threshold: that of the user, else of the model, else 0.5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from embodied_rm.api.base_reward_model import BaseRewardModel
from embodied_rm.api.learned_reward import LearnedReward
from embodied_rm.audit import AuditRewardConfig, audit
from embodied_rm.evaluate import evaluate
from embodied_rm.models.reward_model import Capabilities, InputSpec, make_plain_output
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Episode, Views
from embodied_rm.types import RewardOutput as Output

FITTED, BRIGHT = 0.8, 0.7
SETTINGS = [(None, None, True), (FITTED, None, False), (FITTED, 0.6, True), (None, 0.75, False)]
"""Fitted threshold, threshold of the user, and whether a success probability of `BRIGHT` is "done"."""


class UnsavedRewardModel(BaseRewardModel[Any]):
    """A model of the Python API that is never saved."""

    def _write_checkpoint(self, folder: Path) -> None:
        raise AssertionError("not saved here")


class RowState:
    """State of N rows without content."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def take(self, rows: np.ndarray) -> RowState:
        return RowState(len(rows))

    def put(self, rows: np.ndarray, other: object) -> RowState:
        return self

    def potential(self) -> np.ndarray:
        return np.zeros(self.length, np.float32)


class BrightnessModel:
    """Progress and success are the first pixel, in percent."""

    input_spec = InputSpec()

    def __init__(self, success_threshold: float | None) -> None:
        self.capabilities = Capabilities(success_threshold=success_threshold)

    def reset(
        self, views: Views, instructions: object, goal: Views | None = None, reference: object = None
    ) -> RowState:
        return RowState(len(views))

    def step(self, state: RowState, views: Views) -> tuple[Output, RowState]:
        percent = np.asarray(views.frames)[:, 0, 0, 0, 0].astype(np.float32) / 100
        return make_plain_output(percent, np.ones(len(percent), bool), percent), state


def video(name: str, percent: list[int], instruction: str = "go") -> Episode:
    """Return an episode whose pixels are its percent; it is a success where the last one is `BRIGHT`."""
    frames = np.broadcast_to(np.array(percent, np.uint8)[:, None, None, None], (len(percent), 4, 4, 3)).copy()
    progress = np.linspace(0, percent[-1] >= 100 * BRIGHT, len(percent), dtype=np.float32)
    return Episode(name=name, views={"front": frames}, instruction=instruction, fps=10.0, progress=progress)


class BrightEnv(gym.Env):
    """Shows `BRIGHT` from the first step on."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = action_space = gym.spaces.Box(0, 1, (1,), np.float32)
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        return np.float32([0]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.float32([0]), 0.0, False, False, {}

    def render(self) -> np.ndarray:
        return np.full((4, 4, 3), round(100 * BRIGHT), np.uint8)


@pytest.mark.parametrize(("fitted", "setting", "is_done"), SETTINGS)
def test_score_and_learned_reward_agree_on_done(fitted: float | None, setting: float | None, is_done: bool) -> None:
    model = BrightnessModel(fitted)
    frames = np.full((3, 4, 4, 3), round(100 * BRIGHT), np.uint8)
    output = UnsavedRewardModel(model).score(frames, "go", success_threshold=setting, success_patience=2)
    assert output.done.tolist() == [False, False, is_done]
    env = LearnedReward(
        BrightEnv(), model, instruction="go", success_source="model", success_threshold=setting, success_patience=2
    )
    env.reset()
    assert [env.step(np.zeros(1, np.float32))[2] for _ in range(2)] == [False, is_done]


@pytest.mark.parametrize(("fitted", "setting", "is_done"), SETTINGS)
def test_subgoals_and_audit_agree_on_done(fitted: float | None, setting: float | None, is_done: bool) -> None:
    model = BrightnessModel(fitted)
    first = Views(names=("front",), frames=np.full((1, 1, 4, 4, 3), round(100 * BRIGHT), np.uint8))
    subgoal_model = SubgoalRewardModel(model, setting, patience=1)
    output, _ = subgoal_model.step(subgoal_model.reset(first, ["go; then stop"]), first)
    assert output.subtask.tolist() == [is_done]
    config = AuditRewardConfig(reward=RewardConfig(success_threshold=setting, success_patience=2))
    results = audit(model, [video("good", [0, 20, 40, 70, 70, 70]), video("bad", [0] * 6)], config, NullReporter())
    assert {result.case.name: result.value for result in results}["unmodified_success"] == is_done


@pytest.mark.parametrize(("fitted", "recall"), [(None, 1.0), (FITTED, 0.0)])
def test_evaluate_counts_done_from_the_threshold_of_the_model(fitted: float | None, recall: float) -> None:
    episodes = [video("good", [0, 20, 40, 70]), video("bad", [0, 20, 30, 40])]
    result = evaluate(BrightnessModel(fitted), episodes, NullReporter())
    assert result["reward_model"]["success_recall"] == recall
    assert result["reward_model"]["completion_accuracy"] == (1 + recall) / 2
    assert result["baselines"]["time"]["success_recall"] == 1, "baselines have no fitted threshold"


def test_a_demonstration_has_the_default_threshold() -> None:
    """It decides success in another way than the head that the threshold was fitted for."""
    frames = np.full((2, 4, 4, 3), round(100 * BRIGHT), np.uint8)
    model = UnsavedRewardModel(BrightnessModel(FITTED))
    demonstration = video("demonstration", [0, 35, 70])
    output = model.score(frames, "go", demonstration=demonstration, success_patience=1)
    assert output.done[-1]
