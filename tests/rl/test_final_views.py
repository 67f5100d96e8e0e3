"""What is scored at an episode's end is the image that a run without autoreset shows there, pixel by pixel."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from rl_envs import judged

from embodied_rm.models.reward_model import Capabilities
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

TASK, ROWS, LIMIT, STEPS = "press_button", 5, 40, 100
SCORES = np.array([3, 5, 8, 11, 1000])
"""After how many scores of an episode the model says "done", for each row; the last always meets the time limit."""
FAULT = (1, 27)
"""Row and step of an environment that breaks down."""
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (STEPS, ROWS, 4)).astype(np.float32)


@dataclass(frozen=True)
class Scores:
    """Whose memory it is, and how many frames of the episode were scored."""

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
class Witness:
    """Keeps what it is shown: first frames in the order of the rows, later ones by row."""

    capabilities = Capabilities()
    begun: list[np.ndarray] = field(default_factory=list)
    scored: dict[int, np.ndarray] = field(default_factory=dict)

    def reset(self, views, instructions, goal=None):
        self.begun = list(views.frames)
        return Scores(np.arange(len(views)), np.zeros(len(views), np.int64))

    def step(self, memory, views):
        self.scored = dict(zip(memory.row.tolist(), views.frames, strict=True))
        count = memory.count + 1
        done = (count >= SCORES[memory.row]).astype(np.float32)
        return judged(np.zeros(len(views), np.float32), np.ones(len(views), bool), done), Scores(memory.row, count)


def envs(mode: AutoresetMode = AutoresetMode.DISABLED, **keys) -> TabletopVecEnv:
    return TabletopVecEnv(TASK, ROWS, views=("front", "wrist"), image_size=32, autoreset_mode=mode, **keys)


def fail(env: TabletopVecEnv, step: int) -> None:
    if step == FAULT[1]:
        env._backend.qvel[FAULT[0]] = np.nan


@pytest.mark.parametrize("every", [1, 3])
def test_every_scored_image_is_that_of_a_run_reset_by_hand(every: int) -> None:
    model = Witness()
    inner, plain = envs(), envs()
    env = LearnedRewardEnv(inner, model, RewardConfig(score_every=every, success_patience=1), gamma=0.9)
    env.reset(seed=3), plain.reset(seed=3)
    assert np.array_equal(model.begun, plain.render_views())
    ends: list[list[int]] = [[] for _ in range(ROWS)]
    for t, actions in enumerate(ACTIONS):
        model.scored, model.begun = {}, []
        fail(inner, t), fail(plain, t)
        _, _, terminated, truncated, _ = env.step(actions)
        plain.step(actions)
        shown, ended = plain.render_views(), np.flatnonzero(terminated | truncated)
        assert all(np.array_equal(image, shown[row]) for row, image in model.scored.items())
        assert {*ended} - {*model.scored} == ({FAULT[0]} if t == FAULT[1] else set()), "ends are scored, faults are not"
        if len(ended):
            plain.reset(options={"reset_mask": terminated | truncated})
            fresh = plain.render_views(ended)
            assert np.array_equal(model.begun, fresh)
            assert not any(np.array_equal(shown[row], new) for row, new in zip(ended, fresh, strict=True))
        for row in ended:
            ends[row].append(t)
    assert ends[-1] == [LIMIT - 1, 2 * LIMIT - 1] and FAULT[1] in ends[FAULT[0]]
    assert [row[0] + 1 for row in ends[:-1]] == (every * SCORES[:-1]).tolist(), "rows end at different steps"
    env.close(), plain.close()


def test_final_views_are_those_of_a_run_that_nobody_resets() -> None:
    """An environment that breaks down and the time limit: both ends are seen, and the images go on with the new episode."""
    auto, plain = envs(AutoresetMode.SAME_STEP, final_views=True), envs()
    auto.reset(seed=3), plain.reset(seed=3)
    sick = np.arange(ROWS) == FAULT[0]
    ends = {FAULT[1]: sick, LIMIT - 1: ~sick}  # the sick environment has begun anew by then
    for t, actions in enumerate(ACTIONS[:LIMIT]):
        fail(auto, t), fail(plain, t)
        infos = auto.step(actions)[-1]
        plain.step(actions)
        assert ("final_views" in infos) == (t in ends)
        if t in ends:
            seen, ended, shown = infos["final_views"], ends[t], plain.render_views()
            assert np.array_equal(infos["_final_views"], ended)
            assert np.array_equal(seen[ended], shown[ended]) and not seen[~ended].any()
            assert (auto.render_views() != shown).any(axis=(1, 2, 3, 4))[ended].all()
    auto.close(), plain.close()


def test_final_views_are_refused_where_nobody_resets() -> None:
    with pytest.raises(SimError, match="final_views needs autoreset_mode=SAME_STEP"):
        envs(final_views=True)


def test_views_that_nobody_asks_for_are_not_drawn() -> None:
    env = envs(AutoresetMode.SAME_STEP)
    env.reset(seed=0)
    assert not any("final_views" in env.step(actions)[-1] for actions in ACTIONS[:LIMIT])
    assert "renderer" not in vars(env)
    env.close()
