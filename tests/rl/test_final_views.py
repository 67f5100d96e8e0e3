"""The final frames that are scored equal those of a run without autoreset, pixel by pixel."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from rl_envs import make_output

from embodied_rm.models.reward_model import Capabilities
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

TASK, ROWS, LIMIT, STEPS = "press_button", 5, 40, 100
SCORES = np.array([3, 5, 8, 11, 1000])
"""Scores per episode until the model predicts success, per row; the last row always reaches the time limit."""
DIVERGENCE = (1, 27)
"""Row and step of a divergence."""
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (STEPS, ROWS, 4)).astype(np.float32)


@dataclass(frozen=True)
class Scores:
    """State of the model: its row, and the number of scored frames."""

    row: np.ndarray
    count: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def take(self, rows):
        return Scores(self.row[rows], self.count[rows])

    def put(self, rows, other):
        count = self.count.copy()
        count[rows] = other.count
        return Scores(self.row, count)

    def potential(self):
        return np.zeros(len(self), np.float32)


@dataclass
class RecordingModel:
    """Stores its inputs: first frames in the order of the rows, later ones by row."""

    capabilities = Capabilities()
    first_frames: list[np.ndarray] = field(default_factory=list)
    scored: dict[int, np.ndarray] = field(default_factory=dict)

    def reset(self, views, instructions, goal=None):
        self.first_frames = list(views.frames)
        return Scores(np.arange(len(views)), np.zeros(len(views), np.int64))

    def step(self, state, views):
        self.scored = dict(zip(state.row.tolist(), views.frames, strict=True))
        count = state.count + 1
        done = (count >= SCORES[state.row]).astype(np.float32)
        return make_output(np.zeros(len(views), np.float32), np.ones(len(views), bool), done), Scores(state.row, count)


def envs(mode: AutoresetMode = AutoresetMode.DISABLED, **keys) -> TabletopVecEnv:
    return TabletopVecEnv(TASK, ROWS, views=("front", "wrist"), image_size=32, autoreset_mode=mode, **keys)


def fail(env: TabletopVecEnv, step: int) -> None:
    if step == DIVERGENCE[1]:
        env._backend.qvel[DIVERGENCE[0]] = np.nan


@pytest.mark.parametrize("score_every", [1, 3])
def test_scored_images_equal_those_of_a_manual_reset(score_every: int) -> None:
    model = RecordingModel()
    inner, plain = envs(), envs()
    env = LearnedRewardEnv(inner, model, RewardConfig(score_every=score_every, success_patience=1), gamma=0.9)
    env.reset(seed=3), plain.reset(seed=3)
    assert np.array_equal(model.first_frames, plain.render_views())
    ends: list[list[int]] = [[] for _ in range(ROWS)]
    for t, actions in enumerate(ACTIONS):
        model.scored, model.first_frames = {}, []
        fail(inner, t), fail(plain, t)
        _, _, terminated, truncated, _ = env.step(actions)
        plain.step(actions)
        images, ended = plain.render_views(), np.flatnonzero(terminated | truncated)
        assert all(np.array_equal(image, images[row]) for row, image in model.scored.items())
        assert {*ended} - {*model.scored} == ({DIVERGENCE[0]} if t == DIVERGENCE[1] else set()), (
            "ends are scored, divergences are not"
        )
        if len(ended):
            plain.reset(options={"reset_mask": terminated | truncated})
            fresh = plain.render_views(ended)
            assert np.array_equal(model.first_frames, fresh)
            assert not any(np.array_equal(images[row], new) for row, new in zip(ended, fresh, strict=True))
        for row in ended:
            ends[row].append(t)
    assert ends[-1] == [LIMIT - 1, 2 * LIMIT - 1] and DIVERGENCE[1] in ends[DIVERGENCE[0]]
    assert [row[0] + 1 for row in ends[:-1]] == (score_every * SCORES[:-1]).tolist(), "rows end at different steps"
    env.close(), plain.close()


def test_final_views_equal_those_without_reset() -> None:
    """At a divergence and at the time limit, the images after the step are those of the new episode."""
    auto, plain = envs(AutoresetMode.SAME_STEP, final_views=True), envs()
    auto.reset(seed=3), plain.reset(seed=3)
    diverged = np.arange(ROWS) == DIVERGENCE[0]
    ends = {DIVERGENCE[1]: diverged, LIMIT - 1: ~diverged}  # the diverged environment started a new episode before
    for t, actions in enumerate(ACTIONS[:LIMIT]):
        fail(auto, t), fail(plain, t)
        infos = auto.step(actions)[-1]
        plain.step(actions)
        assert ("final_views" in infos) == (t in ends)
        if t in ends:
            final_images, ended, images = infos["final_views"], ends[t], plain.render_views()
            assert np.array_equal(infos["_final_views"], ended)
            assert np.array_equal(final_images[ended], images[ended]) and not final_images[~ended].any()
            assert (auto.render_views() != images).any(axis=(1, 2, 3, 4))[ended].all()
    auto.close(), plain.close()


def test_final_views_without_autoreset_raise() -> None:
    with pytest.raises(SimError, match="final_views needs autoreset_mode=SAME_STEP"):
        envs(final_views=True)


def test_final_views_are_not_rendered_by_default() -> None:
    env = envs(AutoresetMode.SAME_STEP)
    env.reset(seed=0)
    assert not any("final_views" in env.step(actions)[-1] for actions in ACTIONS[:LIMIT])
    assert "renderer" not in vars(env)
    env.close()
