"""Several wishes, one after the other: a state machine over any model, and nothing at all where there is one wish."""

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
from embodied_rm.models.subgoals import SUBGOAL_SEPARATOR, SubgoalRewardModel
from embodied_rm.types import Episode, RewardOutput, Views

PATIENCE = 3
GOAL = 200
"""Value of a goal image's pixels."""


@dataclass(frozen=True)
class Heard:
    """The memory of `Scripted`: what was asked for, the number of the first frame, and the last value."""

    wish: np.ndarray
    opened: np.ndarray
    value: np.ndarray
    aimed: np.ndarray

    def __len__(self) -> int:
        return len(self.wish)

    def take(self, rows):
        return Heard(*(column[rows] for column in vars(self).values()))

    def put(self, rows, other):
        mine = self.take(np.arange(len(self)))
        for name, column in vars(mine).items():
            column[rows] = getattr(other, name)
        return mine

    def potential(self) -> np.ndarray:
        return self.value.copy()


class Scripted:
    """Reads (value, success, valid) of wish k, in percent, off pixel k of the image, and says what it was asked for
    as its step: wish k is the sentence "k". A goal is an image of nothing but `GOAL`."""

    capabilities = Capabilities(accepts_tensors=True)

    def reset(self, views: Views, instructions, goal: Views | None = None) -> Heard:
        wish = np.array([int(text) for text in instructions])
        aimed = np.array([False] * len(wish)) if goal is None else (goal.frames == GOAL).all(axis=(1, 2, 3, 4))
        assert len(aimed) == len(wish) == len(views)
        return Heard(wish, views.frames[:, 0, 1, 0, 0].astype(int), np.zeros(len(wish), np.float32), aimed)

    def step(self, memory: Heard, views: Views) -> tuple[RewardOutput, Heard]:
        said = views.frames[np.arange(len(memory)), 0, 0, memory.wish].astype(np.float32) / 100
        valid = said[:, 2] > 0
        value = np.where(valid, said[:, 0], memory.value)
        judged = RewardOutput(
            progress=value, valid=valid, subtask=memory.wish * 10, success=said[:, 1], uncertainty=said[:, 0] / 2
        )
        return judged, replace(memory, value=value)


def shown(frame: int, *rows) -> Views:
    """One frame of N rows; each gives, wish by wish, (value, success) or (value, success, valid) in percent."""
    frames = np.zeros((len(rows), 1, 2, 4, 3), np.uint8)
    frames[:, 0, 1] = frame
    for row, wishes in enumerate(rows):
        for k, said in enumerate(wishes):
            frames[row, 0, 0, k] = (*said, 100)[:3]
    return Views(names=("front",), frames=frames)


def heard(model: RewardModel, instructions, video, goal: Views | None = None) -> tuple[list[RewardOutput], RewardState]:
    memory, judged = model.reset(video[0], instructions, goal), []
    for views in video[1:]:
        said, memory = model.step(memory, views)
        judged.append(said)
    return judged, memory


def values(judged, name: str = "progress") -> list[float]:
    return [round(float(getattr(said, name)[0]), 4) for said in judged]


TWO = f"0{SUBGOAL_SEPARATOR}1"
PLANS = SubgoalRewardModel(Scripted(), threshold=0.5, patience=PATIENCE)


def test_the_next_wish_begins_where_the_one_before_it_was_surely_done():
    """Wish 0 is done from frame 2 on; a wish begins with its value at 0, whatever its pixels say at that frame."""
    video = [shown(t, [(20 * min(t, 4), 90 * (t > 1)), (50, 0)]) for t in range(7)]
    judged, memory = heard(PLANS, [TWO], video)
    assert values(judged) == [0.1, 0.2, 0.3, 0.5, 0.75, 0.75]
    assert values(judged, "subtask") == [0, 0, 0, 1, 1, 1]
    assert values(judged, "uncertainty") == [0.05, 0.1, 0.15, 0.0, 0.125, 0.125]
    assert memory.states[1].opened.tolist() == [4], "the first frame of the second wish is the one that settled the first"


def test_only_the_last_wish_can_be_the_success_of_the_whole():
    video = [shown(t, [(100, 100), (100, 100), (100, 70)]) for t in range(9)]
    judged, _ = heard(PLANS, [f"0{SUBGOAL_SEPARATOR}1{SUBGOAL_SEPARATOR}2"], video)
    np.testing.assert_allclose(values(judged, "success"), [0, 0, 0, 0, 0, 0, 0.7, 0.7], atol=1e-6)
    assert values(judged, "subtask") == [0, 0, 1, 1, 1, 2, 2, 2] and values(judged)[-1] == 1


def test_a_verdict_that_does_not_last_is_none_and_an_unscored_frame_neither_continues_nor_breaks_it():
    def stages(*said) -> list[float]:
        video = [shown(t, [wish, (0, 0)]) for t, wish in enumerate(((0, 0), *said))]
        return values(heard(PLANS, [TWO], video)[0], "subtask")

    done, not_done, unseen = (100, 90), (100, 40), (0, 90, 0)
    assert stages(done, done, not_done, done, done) == [0] * 5
    assert stages(done, done, unseen, done) == [0, 0, 0, 1]
    assert stages(unseen, unseen, unseen, unseen) == [0] * 4


def test_what_a_wish_on_its_way_undoes_stays_counted():
    video = [shown(t, [(100, 90) if t < 4 else (0, 0), (40, 0)]) for t in range(9)]
    assert values(heard(PLANS, [TWO], video)[0]) == [0.5, 0.5, 0.5, 0.7, 0.7, 0.7, 0.7, 0.7]


def test_a_wish_hardly_begun_is_left_for_the_one_before_it_when_that_is_undone():
    """From frame 5 on wish 0 is undone: three predictions later it is under way again, where it is by then."""
    video = [shown(t, [(100, 90) if t < 5 else (30, 10), (4, 0)]) for t in range(10)]
    judged, memory = heard(PLANS, [TWO], video)
    assert values(judged) == [0.5, 0.5, 0.5, 0.52, 0.52, 0.52, 0.15, 0.15, 0.15]
    assert values(judged, "subtask") == [0, 0, 1, 1, 1, 1, 0, 0, 0] and memory.states[0].opened.tolist() == [0]


def test_a_plan_is_gone_back_through_to_its_beginning():
    said = [(100, 90)] * 9 + [(3, 0)] * 9
    video = [shown(t, [wish, wish, wish]) for t, wish in enumerate(said)]
    judged, memory = heard(PLANS, [f"0{SUBGOAL_SEPARATOR}1{SUBGOAL_SEPARATOR}2"], video)
    assert values(judged, "subtask")[5:] == [2] * 5 + [1] * 3 + [0] * 4 and memory.num_done.tolist() == [0]


def test_what_is_left_keeps_its_spread_and_what_begins_has_none():
    video = [shown(t, [(100, 90) if t < 5 else (30, 10), (4, 0)]) for t in range(10)]
    assert values(heard(PLANS, [TWO], video)[0], "uncertainty") == [0.25, 0.25, 0.0, 0.01, 0.01, 0.01, 0.075, 0.075, 0.075]


def test_an_unscored_frame_neither_continues_nor_breaks_the_count_of_what_is_undone():
    lost = (30, 10)

    def stages(*said) -> list[float]:
        video = [shown(t, [(100, 90), (4, 0)]) for t in range(4)]
        video += [shown(4 + t, [wish, (4, 0, wish[2] if len(wish) > 2 else 100)]) for t, wish in enumerate(said)]
        return values(heard(PLANS, [TWO], video)[0], "subtask")[3:]

    assert stages(lost, lost, (30, 10, 0), lost) == [1, 1, 1, 0]
    assert stages(lost, lost, (100, 90), lost, lost) == [1] * 5


def test_a_low_value_with_a_verdict_done_is_not_undone():
    video = [shown(t, [(100, 90) if t < 5 else (30, 90), (4, 0)]) for t in range(10)]
    assert values(heard(PLANS, [TWO], video)[0], "subtask") == [0, 0] + [1] * 7


def test_wishes_done_long_ago_are_still_watched():
    """Their memory is that of somebody who never looked away."""
    video = [shown(t, [(100 - 5 * t, 90)] * 3) for t in range(12)]
    _, memory = heard(PLANS, [f"0{SUBGOAL_SEPARATOR}1{SUBGOAL_SEPARATOR}2"], video)
    assert memory.num_done.tolist() == [2]
    assert [round(float(mine.potential()[0]), 2) for mine in memory.states] == [0.45] * 3


def test_a_wish_that_looks_undone_for_a_timestep_is_not():
    video = [shown(t, [(100, 90) if t < 5 or t % 3 == 0 else (30, 10), (4, 0)]) for t in range(12)]
    assert values(heard(PLANS, [TWO], video)[0], "subtask") == [0, 0] + [1] * 9


def test_an_unscored_row_carries_the_value_of_the_whole():
    video = [shown(t, [(100, 90), (30, 0) if t < 5 else (90, 90, 0)]) for t in range(7)]
    judged, memory = heard(PLANS, [TWO], video)
    assert values(judged)[-3:] == [0.65] * 3 and values(judged, "valid")[-3:] == [1, 0, 0]
    assert memory.potential()[0] == judged[-1].progress[0]


@given(data=st.data(), rows=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_values_are_a_potential_between_the_wishes_done_and_the_next(data, rows):
    percent = st.integers(0, 100)
    said = st.lists(st.tuples(percent, percent, st.sampled_from((0, 100))), min_size=3, max_size=3)
    video = [shown(t, *(data.draw(said) for _ in range(rows))) for t in range(12)]
    plan = [SUBGOAL_SEPARATOR.join("012"[: data.draw(st.integers(1, 3))]) for _ in range(rows)]
    memory, wishes = PLANS.reset(video[0], plan), np.array([len(text.split(SUBGOAL_SEPARATOR)) for text in plan])
    assert memory.potential().tolist() == [0] * rows
    for views in video[1:]:
        before = memory.num_done
        judged, memory = PLANS.step(memory, views)
        assert ((judged.progress >= 0) & (judged.progress <= 1) & (judged.uncertainty >= 0)).all()
        assert (judged.progress >= (memory.num_done / wishes).astype(np.float32)).all() and (memory.num_done >= 0).all()
        assert (judged.progress <= ((memory.num_done + 1) / wishes).astype(np.float32)).all()
        assert (np.abs(memory.num_done - before) <= 1).all()
        assert (memory.num_done < wishes).all() and (judged.success[memory.num_done < wishes - 1] == 0).all()
        np.testing.assert_array_equal(memory.potential(), judged.progress)


def test_rows_are_independent_whatever_is_asked_of_their_neighbors():
    plan = [TWO, "2", f"1{SUBGOAL_SEPARATOR}0{SUBGOAL_SEPARATOR}2", "0"]
    rng = np.random.default_rng(0)
    said = rng.integers(0, 101, (14, 4, 3, 2))
    said[..., 1] = np.where(rng.random((14, 4, 3)) < 0.8, 90, 10)
    video = [shown(t, *rows.tolist()) for t, rows in enumerate(said)]
    together, _ = heard(PLANS, plan, video)
    assert len({int(stage) for judged in together for stage in judged.subtask[[0, 2]]}) == 3, "every wish is reached"
    for row, text in enumerate(plan):
        alone, _ = heard(PLANS, [text], [views.select(np.array([row])) for views in video])
        for one, other in zip(alone, together, strict=True):
            for name in vars(one):
                np.testing.assert_array_equal(getattr(one, name)[0], getattr(other, name)[row])


def test_take_and_put_are_indexing_and_assignment():
    video = [shown(t, *[[(50 + row, 90), (10 * row, 0)] for row in range(4)]) for t in range(6)]
    _, memory = heard(PLANS, [TWO, "0", TWO, "1"], video)
    before = memory.potential()
    rows = np.array([2, 1])
    np.testing.assert_array_equal(memory.take(rows).potential(), before[rows])
    fresh = PLANS.reset(video[0].select(rows), ["1", TWO])
    mixed = memory.put(rows, fresh)
    np.testing.assert_array_equal(memory.potential(), before)
    assert mixed.potential()[rows].tolist() == [0, 0] and mixed.num_done.tolist() == [1, 0, 0, 0]
    judged, after = PLANS.step(mixed, video[1])
    alone, _ = PLANS.step(fresh, video[1].select(rows))
    untouched, _ = PLANS.step(memory, video[1])
    np.testing.assert_array_equal(judged.progress[rows], alone.progress)
    np.testing.assert_array_equal(judged.progress[[0, 3]], untouched.progress[[0, 3]])
    assert after.done_streak[1] == 1, "a row that begins anew counts its verdicts anew"


def test_the_goal_image_of_a_row_is_shown_to_each_of_its_wishes():
    goal = shown(0, [], [])
    goal.frames[1] = GOAL
    video = [shown(t, *[[(0, 90), (0, 90)]] * 2) for t in range(6)]
    _, memory = heard(PLANS, [TWO, TWO], video, goal)
    assert memory.num_done.tolist() == [1, 1] and memory.states[1].aimed.tolist() == [False, True]
    moved = memory.take(np.array([1, 0])).put(np.array([1]), memory.take(np.array([1])))
    assert [views.frames.min() for views in moved.goal] == [GOAL, GOAL]


torch.manual_seed(1)
NET = ProgressNet(
    NetConfig(views=("front",), encoder=small_encoder_config("patch_tower_tiny", (32, 32)), max_subtasks=4)
).eval()


def noise(length: int, rows: int, seed: int = 0) -> list[Views]:
    frames = np.random.default_rng(seed).integers(0, 256, (length, rows, 1, 32, 32, 3), np.uint8)
    return [Views(names=("front",), frames=image) for image in frames]


@pytest.mark.parametrize("goal", [None, noise(1, 2, seed=5)[0]])
def test_one_wish_is_judged_bit_by_bit_as_by_the_model_itself(goal: Views | None):
    video, plain = noise(6, 2), ["open the drawer", "lift it, then hold it"]
    expected, inner = heard(NET, plain, video, goal)
    judged, memory = heard(SubgoalRewardModel(NET), plain, video, goal)
    assert memory.potential().tobytes() == inner.potential().tobytes()
    mixed, _ = heard(
        SubgoalRewardModel(NET, threshold=1.0), [plain[0], f"{plain[1]}{SUBGOAL_SEPARATOR}drop it"], video, goal
    )
    for said, same, beside in zip(expected, judged, mixed, strict=True):
        for name, numbers in vars(said).items():
            assert getattr(same, name).tobytes() == numbers.tobytes()
            assert getattr(beside, name)[:1].tobytes() == numbers[:1].tobytes(), (
                "nor does a neighbor with two wishes change anything"
            )
            assert getattr(beside, name).dtype == numbers.dtype


@pytest.mark.parametrize("goal", [None, noise(1, 2, seed=5)[0]])
def test_a_net_judges_the_second_wish_as_an_episode_that_begins_there(goal: Views | None):
    video, patience = noise(8, 2), 2
    judged, _ = heard(
        SubgoalRewardModel(NET, threshold=1e-9, patience=patience),
        [f"open it{SUBGOAL_SEPARATOR}lift it"] * 2,
        video,
        goal,
    )
    second, _ = heard(NET, ["lift it"] * 2, video[patience:], goal)
    for said, wish in zip(judged[patience:], second, strict=True):
        np.testing.assert_allclose(said.progress, (1 + wish.progress) / 2, atol=1e-6)
        np.testing.assert_allclose(said.success, wish.success, atol=1e-6)
        np.testing.assert_allclose(said.uncertainty, wish.uncertainty / 2, atol=1e-6)


def test_scoring_recordings_reads_one_wish_after_the_other():
    video = [shown(t, [(80, 90), (60, 90)]).frames[0, 0] for t in range(9)]
    recorded = Episode(name="e", views={"front": np.stack(video)}, instruction=TWO, fps=10.0)
    curve = score_episodes(Scripted(), [recorded])[0]
    np.testing.assert_allclose(curve.progress, [0] + [0.4] * 4 + [0.5] + [0.8] * 3, atol=1e-6)
    assert curve.subtask.tolist() == [0] * 5 + [1] * 4


@pytest.mark.parametrize(
    "text", [f"0{SUBGOAL_SEPARATOR}", f"{SUBGOAL_SEPARATOR}0", f"0{SUBGOAL_SEPARATOR}{SUBGOAL_SEPARATOR}1"]
)
def test_an_empty_wish_is_refused(text: str):
    with pytest.raises(UserError, match="has an empty subgoal: there must be a sentence on both sides of '; then '"):
        PLANS.reset(shown(0, []), [text])
    assert isinstance(PLANS, RewardModel) and PLANS.capabilities == Scripted.capabilities
