"""Instructions with several subgoals: the transitions, and bit-identical predictions for a single subgoal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_rm.errors import UserError
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.reward_model import Capabilities, RewardModel, RewardState
from embodied_rm.models.scoring import score_episodes
from embodied_rm.models.subgoal_state import MAX_SUBGOALS
from embodied_rm.models.subgoals import SubgoalRewardModel, split_subgoals
from embodied_rm.types import SUBGOAL_SEPARATOR, Episode, RewardOutput, Views

PATIENCE = 3
GOAL = 200
"""Pixel value of a goal image."""


@dataclass(frozen=True)
class ScriptedState:
    """The state of `Scripted`: subgoal, number of the first frame, last progress, and whether there is a goal."""

    subgoal: np.ndarray
    first_frame: np.ndarray
    progress: np.ndarray
    has_goal: np.ndarray

    def __len__(self) -> int:
        return len(self.subgoal)

    def take(self, rows):
        return ScriptedState(*(field[rows] for field in vars(self).values()))

    def put(self, rows, other):
        state = self.take(np.arange(len(self)))
        for name, field in vars(state).items():
            field[rows] = getattr(other, name)
        return state

    def potential(self) -> np.ndarray:
        return self.progress.copy()


class Scripted:
    """Reads (progress, success, valid) of subgoal k, in percent, from pixel k of the image. Its subtask names the
    subgoal.

    Subgoal k is the sentence "k". All pixels of a goal image are `GOAL`.
    """

    capabilities = Capabilities(accepts_tensors=True)

    def reset(self, views: Views, instructions, goal: Views | None = None) -> ScriptedState:
        subgoal = np.array([int(text) for text in instructions])
        has_goal = np.array([False] * len(subgoal)) if goal is None else (goal.frames == GOAL).all(axis=(1, 2, 3, 4))
        assert len(has_goal) == len(subgoal) == len(views)
        first_frame = views.frames[:, 0, 1, 0, 0].astype(int)
        return ScriptedState(subgoal, first_frame, np.zeros(len(subgoal), np.float32), has_goal)

    def step(self, state: ScriptedState, views: Views) -> tuple[RewardOutput, ScriptedState]:
        scripted = views.frames[np.arange(len(state)), 0, 0, state.subgoal].astype(np.float32) / 100
        valid = scripted[:, 2] > 0
        progress = np.where(valid, scripted[:, 0], state.progress)
        output = RewardOutput(
            progress=progress,
            valid=valid,
            subtask=state.subgoal * 10,
            success=scripted[:, 1],
            uncertainty=scripted[:, 0] / 2,
        )
        return output, replace(state, progress=progress)


def frame_views(frame: int, *rows) -> Views:
    """One frame of N rows: per row and subgoal (progress, success) or (progress, success, valid), in percent."""
    frames = np.zeros((len(rows), 1, 2, 4, 3), np.uint8)
    frames[:, 0, 1] = frame
    for row, subgoals in enumerate(rows):
        for k, scripted in enumerate(subgoals):
            frames[row, 0, 0, k] = (*scripted, 100)[:3]
    return Views(names=("front",), frames=frames)


def play(model: RewardModel, instructions, video, goal: Views | None = None) -> tuple[list[RewardOutput], RewardState]:
    state, outputs = model.reset(video[0], instructions, goal), []
    for views in video[1:]:
        output, state = model.step(state, views)
        outputs.append(output)
    return outputs, state


def column(outputs, name: str = "progress") -> list[float]:
    return [round(float(getattr(output, name)[0]), 4) for output in outputs]


TWO_SUBGOALS = f"0{SUBGOAL_SEPARATOR}1"
MODEL = SubgoalRewardModel(Scripted(), threshold=0.5, patience=PATIENCE)


def test_next_subgoal_starts_where_the_previous_one_is_done():
    """Subgoal 0 is done from frame 2 on. A subgoal starts with progress 0, whatever its pixels at that frame."""
    video = [frame_views(t, [(20 * min(t, 4), 90 * (t > 1)), (50, 0)]) for t in range(7)]
    outputs, state = play(MODEL, [TWO_SUBGOALS], video)
    assert column(outputs) == [0.1, 0.2, 0.3, 0.5, 0.75, 0.75]
    assert column(outputs, "subtask") == [0, 0, 0, 1, 1, 1]
    assert column(outputs, "uncertainty") == [0.05, 0.1, 0.15, 0.0, 0.125, 0.125]
    assert state.states[1].first_frame.tolist() == [4], "the first frame of the second subgoal completes the first"


def test_success_is_that_of_the_last_subgoal():
    video = [frame_views(t, [(100, 100), (100, 100), (100, 70)]) for t in range(9)]
    outputs, _ = play(MODEL, [f"0{SUBGOAL_SEPARATOR}1{SUBGOAL_SEPARATOR}2"], video)
    np.testing.assert_allclose(column(outputs, "success"), [0, 0, 0, 0, 0, 0, 0.7, 0.7], atol=1e-6)
    assert column(outputs, "subtask") == [0, 0, 1, 1, 1, 2, 2, 2] and column(outputs)[-1] == 1


def test_done_streak_needs_consecutive_predictions_and_ignores_invalid_frames():
    def subtasks(*scripted) -> list[float]:
        video = [frame_views(t, [subgoal, (0, 0)]) for t, subgoal in enumerate(((0, 0), *scripted))]
        return column(play(MODEL, [TWO_SUBGOALS], video)[0], "subtask")

    done, not_done, invalid = (100, 90), (100, 40), (0, 90, 0)
    assert subtasks(done, done, not_done, done, done) == [0] * 5
    assert subtasks(done, done, invalid, done) == [0, 0, 0, 1]
    assert subtasks(invalid, invalid, invalid, invalid) == [0] * 4


def test_started_subgoal_may_undo_the_previous_one():
    video = [frame_views(t, [(100, 90) if t < 4 else (0, 0), (40, 0)]) for t in range(9)]
    assert column(play(MODEL, [TWO_SUBGOALS], video)[0]) == [0.5, 0.5, 0.5, 0.7, 0.7, 0.7, 0.7, 0.7]


def test_previous_subgoal_resumes_when_undone():
    """Subgoal 0 is undone from frame 5 on, and current again three predictions later."""
    video = [frame_views(t, [(100, 90) if t < 5 else (30, 10), (4, 0)]) for t in range(10)]
    outputs, state = play(MODEL, [TWO_SUBGOALS], video)
    assert column(outputs) == [0.5, 0.5, 0.5, 0.52, 0.52, 0.52, 0.15, 0.15, 0.15]
    assert column(outputs, "subtask") == [0, 0, 1, 1, 1, 1, 0, 0, 0] and state.states[0].first_frame.tolist() == [0]


def test_subgoals_can_be_undone_back_to_the_first():
    scripted = [(100, 90)] * 9 + [(3, 0)] * 9
    video = [frame_views(t, [subgoal, subgoal, subgoal]) for t, subgoal in enumerate(scripted)]
    outputs, state = play(MODEL, [f"0{SUBGOAL_SEPARATOR}1{SUBGOAL_SEPARATOR}2"], video)
    assert column(outputs, "subtask")[5:] == [2] * 5 + [1] * 3 + [0] * 4 and state.num_done.tolist() == [0]


def test_uncertainty_at_subgoal_changes():
    video = [frame_views(t, [(100, 90) if t < 5 else (30, 10), (4, 0)]) for t in range(10)]
    assert column(play(MODEL, [TWO_SUBGOALS], video)[0], "uncertainty") == [
        0.25,
        0.25,
        0.0,
        0.01,
        0.01,
        0.01,
        0.075,
        0.075,
        0.075,
    ]


def test_undone_streak_ignores_invalid_frames():
    undone = (30, 10)

    def subtasks(*scripted) -> list[float]:
        video = [frame_views(t, [(100, 90), (4, 0)]) for t in range(4)]
        video += [
            frame_views(4 + t, [subgoal, (4, 0, subgoal[2] if len(subgoal) > 2 else 100)])
            for t, subgoal in enumerate(scripted)
        ]
        return column(play(MODEL, [TWO_SUBGOALS], video)[0], "subtask")[3:]

    assert subtasks(undone, undone, (30, 10, 0), undone) == [1, 1, 1, 0]
    assert subtasks(undone, undone, (100, 90), undone, undone) == [1] * 5


def test_predicted_success_is_not_undone():
    video = [frame_views(t, [(100, 90) if t < 5 else (30, 90), (4, 0)]) for t in range(10)]
    assert column(play(MODEL, [TWO_SUBGOALS], video)[0], "subtask") == [0, 0] + [1] * 7


def test_completed_subgoals_are_still_scored():
    """Their states follow all frames."""
    video = [frame_views(t, [(100 - 5 * t, 90)] * 3) for t in range(12)]
    _, state = play(MODEL, [f"0{SUBGOAL_SEPARATOR}1{SUBGOAL_SEPARATOR}2"], video)
    assert state.num_done.tolist() == [2]
    assert [round(float(inner.potential()[0]), 2) for inner in state.states] == [0.45] * 3


def test_one_undone_prediction_changes_nothing():
    video = [frame_views(t, [(100, 90) if t < 5 or t % 3 == 0 else (30, 10), (4, 0)]) for t in range(12)]
    assert column(play(MODEL, [TWO_SUBGOALS], video)[0], "subtask") == [0, 0] + [1] * 9


def test_invalid_row_carries_its_progress():
    video = [frame_views(t, [(100, 90), (30, 0) if t < 5 else (90, 90, 0)]) for t in range(7)]
    outputs, state = play(MODEL, [TWO_SUBGOALS], video)
    assert column(outputs)[-3:] == [0.65] * 3 and column(outputs, "valid")[-3:] == [1, 0, 0]
    assert state.potential()[0] == outputs[-1].progress[0]


@given(data=st.data(), rows=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_progress_lies_between_completed_subgoals(data, rows):
    percent = st.integers(0, 100)
    scripted = st.lists(st.tuples(percent, percent, st.sampled_from((0, 100))), min_size=3, max_size=3)
    video = [frame_views(t, *(data.draw(scripted) for _ in range(rows))) for t in range(12)]
    instructions = [SUBGOAL_SEPARATOR.join("012"[: data.draw(st.integers(1, 3))]) for _ in range(rows)]
    state, num_subgoals = (
        MODEL.reset(video[0], instructions),
        np.array([len(text.split(SUBGOAL_SEPARATOR)) for text in instructions]),
    )
    assert state.potential().tolist() == [0] * rows
    for views in video[1:]:
        num_done_before = state.num_done
        output, state = MODEL.step(state, views)
        assert ((output.progress >= 0) & (output.progress <= 1) & (output.uncertainty >= 0)).all()
        assert (output.progress >= (state.num_done / num_subgoals).astype(np.float32)).all() and (
            state.num_done >= 0
        ).all()
        assert (output.progress <= ((state.num_done + 1) / num_subgoals).astype(np.float32)).all()
        assert (np.abs(state.num_done - num_done_before) <= 1).all()
        assert (state.num_done < num_subgoals).all() and (output.success[state.num_done < num_subgoals - 1] == 0).all()
        np.testing.assert_array_equal(state.potential(), output.progress)


def test_rows_are_independent():
    instructions = [TWO_SUBGOALS, "2", f"1{SUBGOAL_SEPARATOR}0{SUBGOAL_SEPARATOR}2", "0"]
    rng = np.random.default_rng(0)
    scripted = rng.integers(0, 101, (14, 4, 3, 2))
    scripted[..., 1] = np.where(rng.random((14, 4, 3)) < 0.8, 90, 10)
    video = [frame_views(t, *rows.tolist()) for t, rows in enumerate(scripted)]
    batched, _ = play(MODEL, instructions, video)
    assert len({int(subtask) for output in batched for subtask in output.subtask[[0, 2]]}) == 3, (
        "every subgoal is reached"
    )
    for row, text in enumerate(instructions):
        single, _ = play(MODEL, [text], [views.select(np.array([row])) for views in video])
        for one, other in zip(single, batched, strict=True):
            for name in vars(one):
                np.testing.assert_array_equal(getattr(one, name)[0], getattr(other, name)[row])


def test_take_and_put_are_indexing_and_assignment():
    video = [frame_views(t, *[[(50 + row, 90), (10 * row, 0)] for row in range(4)]) for t in range(6)]
    _, state = play(MODEL, [TWO_SUBGOALS, "0", TWO_SUBGOALS, "1"], video)
    before = state.potential()
    rows = np.array([2, 1])
    np.testing.assert_array_equal(state.take(rows).potential(), before[rows])
    new_state = MODEL.reset(video[0].select(rows), ["1", TWO_SUBGOALS])
    mixed = state.put(rows, new_state)
    np.testing.assert_array_equal(state.potential(), before)
    assert mixed.potential()[rows].tolist() == [0, 0] and mixed.num_done.tolist() == [1, 0, 0, 0]
    output, next_state = MODEL.step(mixed, video[1])
    single, _ = MODEL.step(new_state, video[1].select(rows))
    untouched, _ = MODEL.step(state, video[1])
    np.testing.assert_array_equal(output.progress[rows], single.progress)
    np.testing.assert_array_equal(output.progress[[0, 3]], untouched.progress[[0, 3]])
    assert next_state.done_streak[1] == 1, "a new row starts a new streak"


def test_goal_image_is_passed_to_each_subgoal():
    goal = frame_views(0, [], [])
    goal.frames[1] = GOAL
    video = [frame_views(t, *[[(0, 90), (0, 90)]] * 2) for t in range(6)]
    _, state = play(MODEL, [TWO_SUBGOALS, TWO_SUBGOALS], video, goal)
    assert state.num_done.tolist() == [1, 1] and state.states[1].has_goal.tolist() == [False, True]
    moved = state.take(np.array([1, 0])).put(np.array([1]), state.take(np.array([1])))
    assert [views.frames.min() for views in moved.goal] == [GOAL, GOAL]


torch.manual_seed(1)
NET = ProgressNet(
    NetConfig(views=("front",), encoder=small_encoder_config("patch_tower_tiny", (32, 32)), max_subtasks=4)
).eval()


def noise_video(length: int, rows: int, seed: int = 0) -> list[Views]:
    frames = np.random.default_rng(seed).integers(0, 256, (length, rows, 1, 32, 32, 3), np.uint8)
    return [Views(names=("front",), frames=image) for image in frames]


@pytest.mark.parametrize("goal", [None, noise_video(1, 2, seed=5)[0]])
def test_single_subgoal_is_bit_identical_to_the_model(goal: Views | None):
    video, instructions = noise_video(6, 2), ["open the drawer", "lift it, then hold it"]
    expected, inner = play(NET, instructions, video, goal)
    outputs, state = play(SubgoalRewardModel(NET), instructions, video, goal)
    assert state.potential().tobytes() == inner.potential().tobytes()
    mixed, _ = play(
        SubgoalRewardModel(NET, threshold=1.0),
        [instructions[0], f"{instructions[1]}{SUBGOAL_SEPARATOR}drop it"],
        video,
        goal,
    )
    for output, same, neighbor in zip(expected, outputs, mixed, strict=True):
        for name, numbers in vars(output).items():
            assert getattr(same, name).tobytes() == numbers.tobytes()
            assert getattr(neighbor, name)[:1].tobytes() == numbers[:1].tobytes(), (
                "a neighbor with two subgoals changes nothing"
            )
            assert getattr(neighbor, name).dtype == numbers.dtype


@pytest.mark.parametrize("goal", [None, noise_video(1, 2, seed=5)[0]])
def test_second_subgoal_is_scored_as_an_episode_that_starts_there(goal: Views | None):
    video, patience = noise_video(8, 2), 2
    outputs, _ = play(
        SubgoalRewardModel(NET, threshold=1e-9, patience=patience),
        [f"open it{SUBGOAL_SEPARATOR}lift it"] * 2,
        video,
        goal,
    )
    second, _ = play(NET, ["lift it"] * 2, video[patience:], goal)
    for output, single in zip(outputs[patience:], second, strict=True):
        np.testing.assert_allclose(output.progress, (1 + single.progress) / 2, atol=1e-6)
        np.testing.assert_allclose(output.success, single.success, atol=1e-6)
        np.testing.assert_allclose(output.uncertainty, single.uncertainty / 2, atol=1e-6)


def test_score_episodes_splits_subgoals():
    video = [frame_views(t, [(80, 90), (60, 90)]).frames[0, 0] for t in range(9)]
    episode = Episode(name="e", views={"front": np.stack(video)}, instruction=TWO_SUBGOALS, fps=10.0)
    curve = score_episodes(Scripted(), [episode])[0]
    np.testing.assert_allclose(curve.progress, [0] + [0.4] * 4 + [0.5] + [0.8] * 3, atol=1e-6)
    assert curve.subtask.tolist() == [0] * 5 + [1] * 4


def test_too_many_subgoals_raise() -> None:
    assert len(split_subgoals(SUBGOAL_SEPARATOR.join("0" * MAX_SUBGOALS))) == MAX_SUBGOALS
    with pytest.raises(UserError, match="has 250 subgoals, at most 32"):
        split_subgoals(SUBGOAL_SEPARATOR.join("0" * 250))


@pytest.mark.parametrize(
    "text", [f"0{SUBGOAL_SEPARATOR}", f"{SUBGOAL_SEPARATOR}0", f"0{SUBGOAL_SEPARATOR}{SUBGOAL_SEPARATOR}1"]
)
def test_empty_subgoal_raises(text: str):
    with pytest.raises(UserError, match="has an empty subgoal: there must be a sentence on both sides of '; then '"):
        MODEL.reset(frame_views(0, []), [text])
    assert isinstance(MODEL, RewardModel) and MODEL.capabilities == Scripted.capabilities
