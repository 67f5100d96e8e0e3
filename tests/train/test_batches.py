"""Batches show what the episodes hold: every pixel here says which episode, view and frame it is from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from embodied_rm.data.fingerprint import check_no_overlap, fingerprint
from embodied_rm.errors import DataError
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.targets import settled_success_mask
from embodied_rm.train.batches import NUM_NEGATIVES, LabeledBatch, LabeledBatchSampler
from embodied_rm.train.negative_instructions import NEGATION_PREFIXES, NO_GOAL_FRACTION
from embodied_rm.types import Episode, Subtask

LENGTH = 12


def painted(number: int, *, views: tuple[str, ...] = ("front", "side"), success: bool = True, instruction: str = "go"):
    """Pixels: (episode, view, frame)."""
    frames = np.zeros((len(views), LENGTH, 4, 6, 3), np.uint8)
    frames[..., 0] = number
    frames[..., 1] = np.array([{"front": 10, "side": 20}[view] for view in views])[:, None, None, None]
    frames[..., 2] = np.arange(LENGTH)[:, None, None]
    return Episode(
        name=f"e{number}",
        views=dict(zip(views, frames, strict=True)),
        instruction=instruction,
        fps=10.0,
        subtasks=(Subtask(name="a", start=0, end=6), Subtask(name="b", start=6, end=LENGTH)),
        success=success,
        progress=np.linspace(0, 1 if success else 0.5, LENGTH, dtype=np.float32),
        metadata={"task": instruction},
    )


@pytest.fixture
def batch():
    episodes = [painted(0), painted(1), painted(2, success=False), painted(3, views=("side",)), painted(4)]
    episodes += [painted(5, instruction="stop", success=False), painted(6, instruction="stop", success=False)]
    return LabeledBatchSampler(label(episodes), ("front", "side")).sample(64, 6, np.random.default_rng(0))


def test_every_image_is_of_its_row_view_and_timestep(batch):
    shown = batch.frames[:, :, :, 0, 0]
    assert (batch.frames == shown[:, :, :, None, None]).all()
    assert (shown[..., 1][batch.present] == np.broadcast_to([10, 20], shown.shape[:3])[batch.present]).all()
    assert (shown[~batch.present] == 0).all()
    timesteps = shown[:, :-1]
    rows = timesteps[:, :, 1, 0]
    assert (rows == rows[:, :1]).all()
    ends = np.where(np.isin(rows, [2, 5, 6]), 0.5, 1.0)
    assert np.allclose(batch.targets["hops"].progress, timesteps[:, :, 1, 2] / (LENGTH - 1) * ends)
    assert (batch.targets["hops"].step == timesteps[:, :, 1, 2] // 6).all()
    assert (batch.at == timesteps[:, :, 1, 2]).all()


def test_a_view_that_an_episode_lacks_is_absent_for_all_its_timesteps(batch):
    front, side = batch.present[:, :-1, 0], batch.present[:, :-1, 1]
    lacking = batch.frames[:, 0, 1, 0, 0, 0] == 3
    assert lacking.any() and not front[lacking].any() and front[~lacking].all() and side.all()


def test_the_goal_is_the_end_of_another_success_at_the_same_instruction(batch):
    row, goal = batch.frames[:, 0, 1, 0, 0, 0], batch.frames[:, -1, 1, 0, 0]
    goes = np.isin(row, [0, 1, 2, 3, 4])
    assert np.isin(goal[goes, 0], [0, 1, 3, 4]).all()
    assert (goal[goes, 0] != row[goes]).all()
    assert (goal[:, 2] == LENGTH - 1).all()
    assert (batch.has_goal == goes).all(), "nobody was seen to stop"


def test_every_sentence_for_a_wish_is_told_as_often_and_never_as_a_foreign_one():
    told = ["go", "walk", "move on"]
    walk = replace(painted(0), metadata={"goal": "go", "paraphrases": " | ".join(told)})
    stop = replace(painted(1, instruction="stop"), metadata={"goal": "stop"})
    batch = LabeledBatchSampler(label([walk, stop]), ("front", "side")).sample(600, 4, np.random.default_rng(0))
    going = np.array(batch.goals) == "go"
    instructions, foreign = np.array(batch.instructions), np.array(batch.negatives)
    assert foreign.shape == (NUM_NEGATIVES, 600) and len(set(map(tuple, foreign))) == NUM_NEGATIVES
    assert all(abs((instructions[going] == text).mean() - 1 / 3) < 0.1 for text in told)
    assert not np.isin(foreign[:, going], told).any() and set(instructions[~going]) == {"stop"}
    assert set(told) <= set(foreign[0, ~going])


def test_what_one_recording_calls_its_goal_all_of_that_goal_are_called():
    """Red to the left, told by one, and blue to the right, told by another, are the same end."""
    red, blue = ({"task": "sort", "goal": "red left", "paraphrases": text} for text in ("red, then blue", "blue right"))
    other = replace(painted(2, instruction="red right"), metadata={"task": "sort", "goal": "red right"})
    said = [replace(painted(i, instruction=f"own {i}"), metadata=meta) for i, meta in enumerate((red, blue))]
    batch = LabeledBatchSampler(label([*said, other]), ("front",)).sample(400, 3, np.random.default_rng(0))
    asked = {(batch.frames[b, 0, 0, 0, 0, 0], text) for b, text in enumerate(batch.instructions)}
    both = {"own 0", "own 1", "red, then blue", "blue right"}
    assert asked == {(row, text) for row in (0, 1) for text in both} | {(2, "red right")}


def test_two_phrasings_are_not_two_wishes():
    """Only a recorded goal or task tells that two instructions want different things."""

    def known(batch) -> set[bool]:
        return set(batch.negatives_known.ravel().tolist())

    def drawn(*metas: dict[str, str]):
        said = [replace(painted(i, instruction=f"phrasing {i}"), metadata=meta) for i, meta in enumerate(metas)]
        return LabeledBatchSampler(label(said), ("front",)).sample(16, 4, np.random.default_rng(0))

    assert known(drawn({}, {})) == {False}
    assert known(drawn({"task": "t"}, {"task": "t"})) == {False}
    assert known(drawn({"task": "t", "goal": "red"}, {"task": "t", "goal": "red"})) == {False}
    assert known(drawn({"task": "t", "goal": "red"}, {"task": "t", "goal": "blue"})) == {True}
    assert known(drawn({"task": "t"}, {"task": "u"})) == {True}


def test_foreign_instructions_want_something_else_the_opposite_or_nothing(batch):
    asked = set(pairs(batch))
    unwanted = {(own, text) for own in ("go", "stop") for text in ("", *(f"{no}{own}" for no in NEGATION_PREFIXES))}
    assert {("go", "stop"), ("stop", "go")} <= asked <= {("go", "stop"), ("stop", "go")} | unwanted
    alone = LabeledBatchSampler(label([painted(0)]), ("front",)).sample(2, 4, np.random.default_rng(0))
    assert alone.negatives == (alone.instructions,) * NUM_NEGATIVES


def pairs(batch: LabeledBatch) -> list[tuple[str, str]]:
    """Own instruction and foreign one, of every episode and look."""
    return [pair for texts in batch.negatives for pair in zip(batch.instructions, texts, strict=True)]


def test_what_a_success_fulfils_as_well_is_no_foreign_wish():
    metas = [{"task": "place", "goal": "place", "fulfils": "open"}, {"task": "open", "goal": "open"}]
    metas += [{"task": "close", "goal": "close"}]
    said = [replace(painted(i, instruction=meta["goal"]), metadata=meta) for i, meta in enumerate(metas)]
    batch = LabeledBatchSampler(label(said), ("front",)).sample(200, 3, np.random.default_rng(0))
    drawn = set(pairs(batch))
    plain = {(own, text) for own, text in drawn if text and not text.startswith(NEGATION_PREFIXES)}
    assert plain == {("place", "close"), ("open", "place"), ("open", "close"), ("close", "place"), ("close", "open")}


def test_other_wishes_of_the_same_task_are_as_frequent_as_all_together():
    """One word apart, and drawn often enough to be learned, however many tasks there are."""
    metas = [{"task": "lift", "goal": "red"}, {"task": "lift", "goal": "blue"}]
    metas += [{"task": f"other {i}", "goal": f"goal {i}"} for i in range(18)]
    said = [replace(painted(i, instruction=meta["goal"]), metadata=meta) for i, meta in enumerate(metas)]
    batch = LabeledBatchSampler(label(said[:1] * 50 + said), ("front",)).sample(1000, 3, np.random.default_rng(0))
    drawn = [text for own, text in pairs(batch) if own == "red"]
    foreign = [text for text in drawn if text and not text.startswith(NEGATION_PREFIXES)]
    assert len(foreign) / len(drawn) == pytest.approx(1 - NO_GOAL_FRACTION, abs=0.05)
    assert 0.4 < np.mean([text == "blue" for text in foreign]) < 0.65
    assert len(set(foreign)) == 19 and "red" not in foreign


def test_half_of_a_batch_rehearses_whatever_the_number_of_old_episodes():
    new, old = [painted(0), painted(1)], [painted(number, instruction="stop") for number in range(2, 12)]
    labeled = label([*new, *old])
    drawn = LabeledBatchSampler(labeled[:2], ("front", "side"), labeled[2:]).sample(9, 4, np.random.default_rng(0))
    assert drawn.instructions == ("go",) * 5 + ("stop",) * 4
    assert len(set(drawn.frames[5:, 0, 0, 0, 0, 0].tolist())) == 4, "none twice while there are enough"


def test_an_odd_word_does_not_tell_whose_wish_it_is():
    """Own and foreign sentences, and denied ones, are varied alike."""
    metas = [{"task": "lift", "goal": f"lift {color}"} for color in ("red", "blue")]
    said = [
        replace(painted(i, instruction=f"please {meta['goal']} now"), metadata=meta) for i, meta in enumerate(metas)
    ]
    batch = LabeledBatchSampler(
        label(said), ("front",), word_replacement_prob=0.4, replacement_words=("zebra",)
    ).sample(2000, 3, np.random.default_rng(0))
    told = [
        batch.instructions,
        [text for _, text in pairs(batch) if text and not text.startswith(NEGATION_PREFIXES)],
        [text for _, text in pairs(batch) if text.startswith(NEGATION_PREFIXES)],
    ]
    shares = [np.mean([text.count("zebra") / 3 for text in texts]) for texts in told]
    assert np.allclose(shares, 0.4, atol=0.05) and all("red" in text or "blue" in text for text in told[0])


def test_what_tells_two_wishes_of_one_goal_apart_is_never_replaced():
    """Red to the left is blue to the right: one goal, but without the sides nobody knows what is wanted."""
    wishes = ("red to the left, the other one elsewhere", "blue to the right, the other one elsewhere")
    said = [
        replace(painted(i, instruction=wishes[i % 2]), metadata={"task": "sort", "goal": "red left"}) for i in range(4)
    ]
    batch = LabeledBatchSampler(
        label(said), ("front",), word_replacement_prob=0.8, replacement_words=("zebra",)
    ).sample(200, 3, np.random.default_rng(0))
    for text in batch.instructions:
        assert text.split()[:1] + text.split()[3:4] in (["red", "left,"], ["blue", "right,"]) and "zebra" in text


def test_tasks_of_many_goals_come_more_often():
    """Of nine goals three times as often as of one, though there are as many episodes."""
    metas = [{"task": "lift", "goal": "lift"}] * 9 + [{"task": "stack", "goal": f"tower {i}"} for i in range(9)]
    said = [replace(painted(i, instruction=meta["goal"]), metadata=meta) for i, meta in enumerate(metas)]
    batches, rng = LabeledBatchSampler(label(said), ("front", "side")), np.random.default_rng(0)
    lifts = np.mean([batches.sample(1, 3, rng).goals == ("lift",) for _ in range(3000)])
    assert lifts == pytest.approx(0.25, abs=0.02)


def test_the_same_video_in_other_words_is_no_goal_image():
    again = [painted(0), replace(painted(0), instruction="walk", metadata={"goal": "go"})]
    again[0] = replace(again[0], metadata={"goal": "go"})
    assert (
        not LabeledBatchSampler(label(again), ("front", "side")).sample(8, 4, np.random.default_rng(0)).has_goal.any()
    )
    other = [*again, replace(painted(1), metadata={"goal": "go"})]
    assert LabeledBatchSampler(label(other), ("front", "side")).sample(8, 4, np.random.default_rng(0)).has_goal.all()


def test_foreign_sentences_that_no_episode_has_are_drawn_for_the_task():
    episodes = label([painted(0), painted(1)])
    assert not LabeledBatchSampler(episodes, ("front",)).sample(8, 4, np.random.default_rng(0)).negatives_known.any()
    drawn = LabeledBatchSampler(episodes, ("front",), negative_instructions=["stop"]).sample(
        64, 4, np.random.default_rng(0)
    )
    assert drawn.negatives_known.all() and drawn.negatives[0].count("stop") > 40


def test_done_is_the_end_of_a_success_even_where_the_last_step_ends_with_the_recording():
    annotated = replace(painted(0), progress=None)
    assert label([annotated])[0].success.tolist() == [False] * (LENGTH - 1) + [True]
    assert label([annotated])[0].progress[-1] == 1
    assert not label([painted(1, success=False)])[0].success.any()


def test_only_what_has_stayed_done_for_a_while_is_taught_as_done():
    done = np.array([0, 0, 1, 1, 1, 0, 1, 1, 1, 1], bool)
    assert settled_success_mask(done, 2).tolist() == [1, 1, 0, 0, 1, 1, 0, 0, 1, 1]
    assert settled_success_mask(done, 0).all()
    assert settled_success_mask(done, 9).tolist() == [1, 1, 0, 0, 0, 1, 0, 0, 0, 1], "the end of a success is done"
    assert settled_success_mask(np.ones(4, bool), 2).tolist() == [0, 0, 1, 1]


def test_a_batch_knows_which_of_its_timesteps_are_beyond_doubt():
    episode = replace(painted(0), progress=np.minimum(np.arange(LENGTH) / 6, 1).astype(np.float32))
    batch = LabeledBatchSampler(label([episode]), ("front",)).sample(64, 6, np.random.default_rng(0))
    frame = batch.frames[:, :-1, 0, 0, 0, 2]
    assert (batch.targets["hops"].success == (frame >= 6)).all()
    assert (batch.targets["hops"].success_known == ~np.isin(frame, [6, 7])).all(), "0.2 s at 10 frames a second"


def test_a_fingerprint_ignores_name_and_wish_and_notices_a_pixel():
    episode = painted(0)
    assert fingerprint(replace(episode, name="other", instruction="stay")) == fingerprint(episode)
    changed = {name: frames.copy() for name, frames in episode.views.items()}
    changed["side"][3, 2, 1, 0] ^= 1
    assert fingerprint(replace(episode, views=changed)) != fingerprint(episode)


def test_the_same_episode_on_both_sides_of_a_split_is_refused():
    ours = {fingerprint(painted(i)): f"train_{i}" for i in range(3)}
    check_no_overlap(ours, {fingerprint(painted(7)): "test_0"})
    with pytest.raises(DataError, match=r"test_1: held out, but the same episode is trained on .*train_2"):
        check_no_overlap(ours, {fingerprint(replace(painted(2), name="renamed", instruction="stay")): "test_1"})
