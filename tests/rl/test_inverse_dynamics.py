"""Actions of episodes without them are inferred from how the states change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from embodied_rm.errors import DataError
from embodied_rm.rl.offline import inverse_dynamics
from embodied_rm.rl.offline.inverse_dynamics import infer_actions
from embodied_rm.types import Episode

STEP_M = 0.01


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("STEPS", 600), ("BATCH_SIZE", 64), ("LEARNING_RATE", 3e-3)):
        monkeypatch.setattr(inverse_dynamics, name, value)


def walk(number: int, length: int = 40, step_m: float = STEP_M) -> Episode:
    """A point that each action moves by up to `step_m`; a third coordinate does not depend on it."""
    rng = np.random.default_rng(number)
    action = rng.uniform(-1, 1, (length, 2)).astype(np.float32)
    place = np.cumsum(np.vstack([rng.uniform(-0.2, 0.2, (1, 2)), step_m * action[:-1]]), axis=0)
    state = np.concatenate([place, np.full((length, 1), rng.random())], axis=1).astype(np.float32)
    views = {"front": np.zeros((length, 2, 2, 3), np.uint8)}
    return Episode(name=f"walk_{number}", views=views, instruction="walk", fps=10, state=state, action=action)


@pytest.mark.parametrize("step_m", [STEP_M, 1e-4])
def test_actions_are_recovered_and_known_ones_stay(step_m: float) -> None:
    labeled = [walk(number, step_m=step_m) for number in range(12)]
    unlabeled = [walk(number, step_m=step_m) for number in range(100, 104)]
    hidden = [replace(episode, action=None) for episode in unlabeled]
    result = infer_actions([*labeled, *hidden], seed=0)
    assert result.num_inferred == 4 and result.validation_rmse < 0.1
    assert result.episodes[:12] == labeled
    for episode, truth in zip(result.episodes[12:], unlabeled, strict=True):
        assert np.abs(episode.action[:-1] - truth.action[:-1]).mean() < 0.1
        assert np.abs(episode.action).max() <= 1, "no action is larger than those that were recorded"
        assert not episode.action[-1].any(), "the last action is not taken"


def test_what_is_not_of_the_robot_has_no_effect() -> None:
    def infer(scene: float) -> Episode:
        """The third coordinate is drawn per episode."""
        states = [walk(number).state * np.array([1, 1, scene], np.float32) for number in range(4)]
        *labeled, hidden = (replace(walk(number), state=state) for number, state in enumerate(states))
        return infer_actions([*labeled, replace(hidden, action=None)], seed=0, proprio_dim=2).episodes[-1]

    np.testing.assert_array_equal(infer(1.0).action, infer(7.0).action)


def test_an_episode_of_one_frame_passes_through() -> None:
    short = replace(walk(3, length=1), action=None)
    result = infer_actions([walk(0), walk(1), short], seed=0)
    assert result.episodes[-1].action.shape == (1, 2)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong is said before the training."""
    monkeypatch.setattr(inverse_dynamics, "train_model", lambda *_: pytest.fail("it was trained"))


def test_other_frame_rates_and_sizes_are_named(no_training: None) -> None:
    slow = replace(walk(2), action=None, fps=5)
    with pytest.raises(DataError, match="walk_0 has 10 frames/s, walk_2 5"):
        infer_actions([walk(0), walk(1), slow], seed=0)
    wide = replace(walk(2), action=None, state=np.zeros((40, 4), np.float32))
    with pytest.raises(DataError, match="walk_2: its state has size 4, that of the others 3"):
        infer_actions([walk(0), walk(1), wide], seed=0)


def test_too_few_actions_and_missing_states_say_so(no_training: None) -> None:
    with pytest.raises(DataError, match="at least 2 episodes that have them, and 1 has"):
        infer_actions([walk(0), replace(walk(1), action=None)], seed=0)
    with pytest.raises(DataError, match="walk_2: its actions cannot be inferred without states"):
        infer_actions([walk(0), walk(1), replace(walk(2), action=None, state=None)], seed=0)
