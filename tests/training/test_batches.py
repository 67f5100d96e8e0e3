"""Contents of batches: every pixel here encodes its episode, view and frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from embodied_rm.data.fingerprint import check_no_overlap, fingerprint
from embodied_rm.errors import DataError
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.targets import settled_success_mask
from embodied_rm.training.batches import NUM_NEGATIVES, LabeledBatch, LabeledBatchSampler
from embodied_rm.training.negative_instructions import NEGATION_PREFIXES, NO_GOAL_FRACTION
from embodied_rm.types import Episode, Subtask

LENGTH = 12


def coded_episode(
    number: int, *, views: tuple[str, ...] = ("front", "side"), success: bool = True, instruction: str = "go"
):
    """Return an episode whose pixels are (episode, view, frame)."""
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
    episodes = [
        coded_episode(0),
        coded_episode(1),
        coded_episode(2, success=False),
        coded_episode(3, views=("side",)),
        coded_episode(4),
    ]
    episodes += [
        coded_episode(5, instruction="stop", success=False),
        coded_episode(6, instruction="stop", success=False),
    ]
    return LabeledBatchSampler(label(episodes), ("front", "side")).sample(64, 6, np.random.default_rng(0))


def test_images_match_their_row_view_and_frame(batch):
    codes = batch.frames[:, :, :, 0, 0]
    assert (batch.frames == codes[:, :, :, None, None]).all()
    assert (codes[..., 1][batch.present] == np.broadcast_to([10, 20], codes.shape[:3])[batch.present]).all()
    assert (codes[~batch.present] == 0).all()
    sampled = codes[:, :-1]
    rows = sampled[:, :, 1, 0]
    assert (rows == rows[:, :1]).all()
    final_progress = np.where(np.isin(rows, [2, 5, 6]), 0.5, 1.0)
    assert np.allclose(batch.targets["hops"].progress, sampled[:, :, 1, 2] / (LENGTH - 1) * final_progress)
    assert (batch.targets["hops"].subtask == sampled[:, :, 1, 2] // 6).all()
    assert (batch.frame_indices == sampled[:, :, 1, 2]).all()


def test_missing_view_is_absent_in_all_frames(batch):
    front, side = batch.present[:, :-1, 0], batch.present[:, :-1, 1]
    missing = batch.frames[:, 0, 1, 0, 0, 0] == 3
    assert missing.any() and not front[missing].any() and front[~missing].all() and side.all()


def test_goal_image_is_the_end_of_another_success(batch):
    row, goal = batch.frames[:, 0, 1, 0, 0, 0], batch.frames[:, -1, 1, 0, 0]
    has_goal = np.isin(row, [0, 1, 2, 3, 4])
    assert np.isin(goal[has_goal, 0], [0, 1, 3, 4]).all()
    assert (goal[has_goal, 0] != row[has_goal]).all()
    assert (goal[:, 2] == LENGTH - 1).all()
    assert (batch.has_goal == has_goal).all(), "no episode succeeds at stop"


def test_paraphrases_are_equally_frequent_and_never_negatives():
    paraphrases = ["go", "walk", "move on"]
    walk = replace(coded_episode(0), metadata={"goal": "go", "paraphrases": " | ".join(paraphrases)})
    stop = replace(coded_episode(1, instruction="stop"), metadata={"goal": "stop"})
    batch = LabeledBatchSampler(label([walk, stop]), ("front", "side")).sample(600, 4, np.random.default_rng(0))
    is_go = np.array(batch.goals) == "go"
    instructions, negatives = np.array(batch.instructions), np.array(batch.negatives)
    assert negatives.shape == (NUM_NEGATIVES, 600) and len(set(map(tuple, negatives))) == NUM_NEGATIVES
    assert all(abs((instructions[is_go] == text).mean() - 1 / 3) < 0.1 for text in paraphrases)
    assert not np.isin(negatives[:, is_go], paraphrases).any() and set(instructions[~is_go]) == {"stop"}
    assert set(paraphrases) <= set(negatives[0, ~is_go])


def test_episodes_of_one_goal_share_their_instructions():
    """Red to the left in one episode and blue to the right in another are the same goal."""
    red, blue = ({"task": "sort", "goal": "red left", "paraphrases": text} for text in ("red, then blue", "blue right"))
    other = replace(coded_episode(2, instruction="red right"), metadata={"task": "sort", "goal": "red right"})
    same_goal = [replace(coded_episode(i, instruction=f"own {i}"), metadata=meta) for i, meta in enumerate((red, blue))]
    batch = LabeledBatchSampler(label([*same_goal, other]), ("front",)).sample(400, 3, np.random.default_rng(0))
    sampled = {(batch.frames[b, 0, 0, 0, 0, 0], text) for b, text in enumerate(batch.instructions)}
    shared = {"own 0", "own 1", "red, then blue", "blue right"}
    assert sampled == {(row, text) for row in (0, 1) for text in shared} | {(2, "red right")}


def test_paraphrases_are_not_different_goals():
    """Only a recorded goal or task proves that two instructions have different goals."""

    def known(*metas: dict[str, str]) -> set[bool]:
        data = [replace(coded_episode(i, instruction=f"phrasing {i}"), metadata=meta) for i, meta in enumerate(metas)]
        batch = LabeledBatchSampler(label(data), ("front",)).sample(16, 4, np.random.default_rng(0))
        return set(batch.negatives_known.ravel().tolist())

    assert known({}, {}) == {False}
    assert known({"task": "t"}, {"task": "t"}) == {False}
    assert known({"task": "t", "goal": "red"}, {"task": "t", "goal": "red"}) == {False}
    assert known({"task": "t", "goal": "red"}, {"task": "t", "goal": "blue"}) == {True}
    assert known({"task": "t"}, {"task": "u"}) == {True}


def test_negatives_have_another_goal_or_are_negated_or_empty(batch):
    sampled = set(pairs(batch))
    without_goal = {(own, text) for own in ("go", "stop") for text in ("", *(f"{no}{own}" for no in NEGATION_PREFIXES))}
    assert {("go", "stop"), ("stop", "go")} <= sampled <= {("go", "stop"), ("stop", "go")} | without_goal
    single = LabeledBatchSampler(label([coded_episode(0)]), ("front",)).sample(2, 4, np.random.default_rng(0))
    assert single.negatives == (single.instructions,) * NUM_NEGATIVES


def pairs(batch: LabeledBatch) -> list[tuple[str, str]]:
    """Return all (own instruction, negative) pairs."""
    return [pair for texts in batch.negatives for pair in zip(batch.instructions, texts, strict=True)]


def test_implied_goals_are_no_negatives():
    metas = [{"task": "place", "goal": "place", "fulfils": "open"}, {"task": "open", "goal": "open"}]
    metas += [{"task": "close", "goal": "close"}]
    data = [replace(coded_episode(i, instruction=meta["goal"]), metadata=meta) for i, meta in enumerate(metas)]
    batch = LabeledBatchSampler(label(data), ("front",)).sample(200, 3, np.random.default_rng(0))
    plain = {(own, text) for own, text in set(pairs(batch)) if text and not text.startswith(NEGATION_PREFIXES)}
    assert plain == {("place", "close"), ("open", "place"), ("open", "close"), ("close", "place"), ("close", "open")}


def test_the_own_instruction_is_no_negative_though_another_goal_has_it_too():
    metas = [{"task": f"pick_v{i}", "goal": f"pick {i}"} for i in range(2)] + [{"task": "stop", "goal": "stop"}]
    texts = ("pick it", "pick it", "stop")
    data = [replace(coded_episode(i, instruction=texts[i]), metadata=meta) for i, meta in enumerate(metas)]
    batch = LabeledBatchSampler(label(data), ("front",)).sample(200, 3, np.random.default_rng(0))
    assert all(own != negative for own, negative in pairs(batch))


def test_half_of_the_negatives_are_of_the_same_task():
    """Goals of one task may differ in one word, which must be frequent for any number of tasks."""
    metas = [{"task": "lift", "goal": "red"}, {"task": "lift", "goal": "blue"}]
    metas += [{"task": f"other {i}", "goal": f"goal {i}"} for i in range(18)]
    data = [replace(coded_episode(i, instruction=meta["goal"]), metadata=meta) for i, meta in enumerate(metas)]
    batch = LabeledBatchSampler(label(data[:1] * 50 + data), ("front",)).sample(1000, 3, np.random.default_rng(0))
    negatives = [text for own, text in pairs(batch) if own == "red"]
    with_goal = [text for text in negatives if text and not text.startswith(NEGATION_PREFIXES)]
    assert len(with_goal) / len(negatives) == pytest.approx(1 - NO_GOAL_FRACTION, abs=0.05)
    assert 0.4 < np.mean([text == "blue" for text in with_goal]) < 0.65
    assert len(set(with_goal)) == 19 and "red" not in with_goal


def test_half_of_a_batch_is_replayed_for_any_number_of_replay_episodes():
    new, old = (
        [coded_episode(0), coded_episode(1)],
        [coded_episode(number, instruction="stop") for number in range(2, 12)],
    )
    labeled = label([*new, *old])
    batch = LabeledBatchSampler(labeled[:2], ("front", "side"), labeled[2:]).sample(9, 4, np.random.default_rng(0))
    assert batch.instructions == ("go",) * 5 + ("stop",) * 4
    assert len(set(batch.frames[5:, 0, 0, 0, 0, 0].tolist())) == 4, "without replacement"


def test_half_of_the_negatives_of_a_task_are_of_its_nearest_goals() -> None:
    goals = ("red left blue right", "red left pink right", "blue left red right", "pink left blue right", "away")
    episodes = [
        replace(coded_episode(i, instruction=goal), metadata={"task": "sort", "goal": goal})
        for i, goal in enumerate(goals)
    ]
    batch = LabeledBatchSampler(label(episodes), ("front",)).sample(600, 4, np.random.default_rng(0))
    negatives = [text for own, text in pairs(batch) if own == goals[0] and text in goals]
    counts = {goal: negatives.count(goal) / len(negatives) for goal in goals[1:]}
    # One word differs in two of the goals: a quarter of the draws, and half of the three quarters from all four.
    expected = {goals[1]: 0.3125, goals[2]: 0.1875, goals[3]: 0.3125, goals[4]: 0.1875}
    assert counts == pytest.approx(expected, abs=0.06)


def test_own_and_negative_instructions_are_augmented_equally():
    metas = [{"task": "lift", "goal": f"lift {color}"} for color in ("red", "blue")]
    data = [
        replace(coded_episode(i, instruction=f"please {meta['goal']} now"), metadata=meta)
        for i, meta in enumerate(metas)
    ]
    batch = LabeledBatchSampler(
        label(data), ("front",), word_replacement_prob=0.4, replacement_words=("zebra",)
    ).sample(2000, 3, np.random.default_rng(0))
    groups = [
        batch.instructions,
        [text for _, text in pairs(batch) if text and not text.startswith(NEGATION_PREFIXES)],
        [text for _, text in pairs(batch) if text.startswith(NEGATION_PREFIXES)],
    ]
    fractions = [np.mean([text.count("zebra") / 3 for text in texts]) for texts in groups]
    assert np.allclose(fractions, 0.4, atol=0.05) and all("red" in text or "blue" in text for text in groups[0])


def test_discriminative_words_of_one_goal_are_never_replaced():
    """Red to the left and blue to the right are one goal, but the sides discriminate them."""
    instructions = ("red to the left, the other one elsewhere", "blue to the right, the other one elsewhere")
    data = [
        replace(coded_episode(i, instruction=instructions[i % 2]), metadata={"task": "sort", "goal": "red left"})
        for i in range(4)
    ]
    batch = LabeledBatchSampler(
        label(data), ("front",), word_replacement_prob=0.8, replacement_words=("zebra",)
    ).sample(200, 3, np.random.default_rng(0))
    for text in batch.instructions:
        assert text.split()[:1] + text.split()[3:4] in (["red", "left,"], ["blue", "right,"]) and "zebra" in text


def test_tasks_of_many_goals_are_sampled_more_often():
    """A task of nine goals is sampled three times as often as one of a single goal."""
    metas = [{"task": "lift", "goal": "lift"}] * 9 + [{"task": "stack", "goal": f"tower {i}"} for i in range(9)]
    data = [replace(coded_episode(i, instruction=meta["goal"]), metadata=meta) for i, meta in enumerate(metas)]
    sampler, rng = LabeledBatchSampler(label(data), ("front", "side")), np.random.default_rng(0)
    lifts = np.mean([sampler.sample(1, 3, rng).goals == ("lift",) for _ in range(3000)])
    assert lifts == pytest.approx(0.25, abs=0.02)


def test_same_video_with_another_instruction_is_no_goal_image():
    def has_goal(data: list[Episode]) -> np.ndarray:
        return LabeledBatchSampler(label(data), ("front", "side")).sample(8, 4, np.random.default_rng(0)).has_goal

    meta = {"goal": "go"}
    same_video = [
        replace(coded_episode(0), metadata=meta),
        replace(coded_episode(0), instruction="walk", metadata=meta),
    ]
    assert not has_goal(same_video).any()
    assert has_goal([*same_video, replace(coded_episode(1), metadata=meta)]).all()


def test_extra_negative_instructions_are_sampled():
    episodes = label([coded_episode(0), coded_episode(1)])
    assert not LabeledBatchSampler(episodes, ("front",)).sample(8, 4, np.random.default_rng(0)).negatives_known.any()
    sampler = LabeledBatchSampler(episodes, ("front",), negative_instructions=["stop"])
    batch = sampler.sample(64, 4, np.random.default_rng(0))
    assert batch.negatives_known.all() and batch.negatives[0].count("stop") > 40


def test_success_is_known_if_the_last_subtask_ends_with_the_episode():
    annotated = replace(coded_episode(0), progress=None)
    assert label([annotated])[0].success.tolist() == [False] * (LENGTH - 1) + [True]
    assert label([annotated])[0].progress[-1] == 1
    assert not label([coded_episode(1, success=False)])[0].success.any()


def test_settled_success_mask():
    success = np.array([0, 0, 1, 1, 1, 0, 1, 1, 1, 1], bool)
    assert settled_success_mask(success, 2).tolist() == [1, 1, 0, 0, 1, 1, 0, 0, 1, 1]
    assert settled_success_mask(success, 0).all()
    assert settled_success_mask(success, 9).tolist() == [1, 1, 0, 0, 0, 1, 0, 0, 0, 1], "the last frame is always known"
    assert settled_success_mask(np.ones(4, bool), 2).tolist() == [0, 0, 1, 1]


def test_new_success_is_no_target():
    episode = replace(coded_episode(0), progress=np.minimum(np.arange(LENGTH) / 6, 1).astype(np.float32))
    batch = LabeledBatchSampler(label([episode]), ("front",)).sample(64, 6, np.random.default_rng(0))
    frame = batch.frames[:, :-1, 0, 0, 0, 2]
    assert (batch.targets["hops"].success == (frame >= 6)).all()
    assert (batch.targets["hops"].success_known == ~np.isin(frame, [6, 7])).all(), "0.2 s at 10 frames/s"


def test_fingerprint_depends_on_pixels_only():
    episode = coded_episode(0)
    assert fingerprint(replace(episode, name="other", instruction="stay")) == fingerprint(episode)
    changed = {name: frames.copy() for name, frames in episode.views.items()}
    changed["side"][3, 2, 1, 0] ^= 1
    assert fingerprint(replace(episode, views=changed)) != fingerprint(episode)


def test_overlap_of_train_and_test_is_rejected():
    train = {fingerprint(coded_episode(i)): f"train_{i}" for i in range(3)}
    check_no_overlap(train, {fingerprint(coded_episode(7)): "test_0"})
    with pytest.raises(DataError, match=r"test_1: held out, but the same episode is trained on .*train_2"):
        check_no_overlap(train, {fingerprint(replace(coded_episode(2), name="renamed", instruction="stay")): "test_1"})
