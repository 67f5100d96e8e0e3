"""Comparisons of clips: drawing, table, judges and the scheme `compared`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.comparisons import (
    COMPARISONS_FILE,
    Clip,
    ClipComparison,
    append_comparisons,
    draw_clip_pairs,
    match_comparisons,
    read_comparisons,
)
from embodied_rm.labels.labeled_episode import label
from embodied_rm.metrics import roc_auc
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score.compare_clips import compare_clips, judge_comparer, progress_comparer
from embodied_rm.training import TrainConfig, train
from embodied_rm.training.batches import LabeledBatchSampler
from embodied_rm.training.clip_batch import ComparisonIndex
from embodied_rm.training.forward import TrainingOutputs
from embodied_rm.training.objective import COMPARISON_RATIONALITY, LossContext
from embodied_rm.types import Views

DATA = episodes(12)
GOALS = {episode.name: episode.instruction for episode in DATA}
PROGRESS = {episode.name: episode.progress for episode in DATA}


class SpriteSource:
    """The sprites as a stored dataset."""

    views = ("front", "top")
    meta = tuple(EpisodeMeta(name=e.name, length=len(e), instruction=e.instruction) for e in DATA)

    def read_frames(self, index, start, stop, *, views, size):
        frames = np.stack([DATA[index].views[view][start:stop] for view in views], axis=1)
        return Views(names=tuple(views), frames=frames)


def compare_all(count: int = 40, flip_rate: float = 0.0) -> list[ClipComparison]:
    pairs = draw_clip_pairs(GOALS, count, 0.25, seed=0)
    answers = progress_comparer(PROGRESS, flip_rate, seed=0)(pairs)
    return [replace(pair, answer=answer) for pair, answer in zip(pairs, answers, strict=True)]


def test_pairs_are_clips_of_two_episodes_of_one_goal() -> None:
    pairs = draw_clip_pairs(GOALS, 200, 0.25, seed=3)
    assert pairs == draw_clip_pairs(GOALS, 200, 0.25, seed=3) != draw_clip_pairs(GOALS, 200, 0.25, seed=4)
    for pair in pairs:
        assert pair.first.episode != pair.second.episode
        assert GOALS[pair.first.episode] == GOALS[pair.second.episode] == pair.goal
        for clip in (pair.first, pair.second):
            assert 0 <= clip.start < clip.end <= 1 and clip.end - clip.start == pytest.approx(0.25, abs=1e-3)
    assert {clip.episode for pair in pairs for clip in (pair.first, pair.second)} == set(GOALS)


def test_without_two_episodes_of_one_goal_nothing_can_be_compared() -> None:
    with pytest.raises(DataError, match="no two of these 2 episodes have the same instruction"):
        draw_clip_pairs({"a": "lift", "b": "push"}, 5, 0.25, seed=0)


@pytest.mark.parametrize(("start", "end", "frames"), [(0, 1, range(9)), (0.5, 0.5, [4]), (0.25, 0.75, range(2, 7))])
def test_a_clip_has_its_share_of_the_frames(start: float, end: float, frames: list[int]) -> None:
    assert np.arange(9)[Clip(episode="a", start=start, end=end).frames(9)].tolist() == list(frames)


def test_recorded_progress_answers_right_and_wrongly_at_a_known_rate() -> None:
    right, noisy = compare_all(2000), compare_all(2000, flip_rate=0.2)
    decided = [(a, b) for a, b in zip(right, noisy, strict=True) if a.is_decided]

    def value(clip: Clip) -> float:
        progress = PROGRESS[clip.episode]
        return float(progress[clip.frames(len(progress))].mean())

    assert all((value(a.first) > value(a.second)) == (a.answer == "first") for a, _ in decided)
    assert np.mean([a.answer != b.answer for a, b in decided]) == pytest.approx(0.2, abs=0.03)


def test_a_table_is_read_as_it_was_written_without_a_last_line_that_is_cut(tmp_path: Path) -> None:
    comparisons = compare_all()
    append_comparisons(tmp_path / COMPARISONS_FILE, comparisons)
    assert read_comparisons(tmp_path) == read_comparisons(tmp_path / COMPARISONS_FILE) == comparisons
    path = tmp_path / COMPARISONS_FILE
    path.write_bytes(path.read_bytes()[:-5])
    assert read_comparisons(tmp_path) == comparisons[:-1]


@pytest.mark.parametrize("line", ["", "{}", "[1]", '{"first": {}, "second": {}, "goal": "x"}', "not JSON"])
def test_a_line_that_is_no_comparison_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "pairs.jsonl"
    append_comparisons(path, compare_all(2))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"pairs\.jsonl, line 3: not a comparison"):
        read_comparisons(path)


def test_an_answer_that_does_not_exist_and_a_table_that_is_missing_say_so(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    append_comparisons(path, [replace(compare_all(1)[0], answer="both")])
    with pytest.raises(DataError, match=r"answer must be one of first, second, neither, .*got 'both'"):
        read_comparisons(path)
    with pytest.raises(UserError, match="embodied-rm prefer writes it"):
        read_comparisons(tmp_path / "nothing.jsonl")


def test_only_decided_comparisons_of_these_episodes_are_learned() -> None:
    comparisons = compare_all(100)
    matched = match_comparisons([*comparisons, replace(comparisons[0], answer="contradiction")], DATA[:6])
    names = {episode.name for episode in DATA[:6]}
    assert matched == [
        c for c in comparisons if c.is_decided and {c.first.episode, c.second.episode} <= names
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"none of .* decided comparisons is of these"):
        match_comparisons(comparisons, [replace(DATA[0], name="other")])
    with pytest.raises(DataError, match="the comparisons are of other data"):
        match_comparisons(comparisons, [replace(episode, instruction="something else") for episode in DATA])


def test_an_interrupted_comparison_goes_on_and_other_pairs_are_refused(tmp_path: Path) -> None:
    pairs, compare = draw_clip_pairs(GOALS, 40, 0.25, seed=0), progress_comparer(PROGRESS, 0.1, seed=0)
    asked = []

    def failing(group):
        if len(asked) >= 2:
            raise KeyboardInterrupt
        asked.append(len(group))
        return compare(group)

    with pytest.raises(KeyboardInterrupt):
        compare_clips(pairs, failing, tmp_path, NullReporter())
    with (tmp_path / COMPARISONS_FILE).open("a") as file:
        file.write('{"first": {"epi')
    counts = compare_clips(pairs, compare, tmp_path, NullReporter())
    assert asked == [16, 16] and counts.total() == 40
    answers = compare(pairs)
    assert [comparison.answer for comparison in read_comparisons(tmp_path)] == answers
    with pytest.raises(UserError, match="has comparisons of other pairs"):
        compare_clips(draw_clip_pairs(GOALS, 40, 0.25, seed=1), compare, tmp_path, NullReporter())


def test_pairs_without_an_answer_are_asked_again(tmp_path: Path) -> None:
    pairs, right = draw_clip_pairs(GOALS, 20, 0.25, seed=0), progress_comparer(PROGRESS, 0.0, seed=0)
    compare_clips(pairs, lambda group: ["unanswered"] * len(group), tmp_path, NullReporter())
    assert not compare_clips(pairs, right, tmp_path, NullReporter())["unanswered"]
    assert [comparison.answer for comparison in read_comparisons(tmp_path)] == right(pairs)


def test_a_judge_sees_the_frames_of_the_clips_only() -> None:
    seen = []

    class Judge:
        def compare(self, pairs, instructions):
            seen.extend(zip(pairs, instructions, strict=True))
            return ["first"] * len(pairs)

    pairs = draw_clip_pairs(GOALS, 6, 0.25, seed=0)
    by_name = {episode.name: episode for episode in DATA}
    assert judge_comparer(Judge(), SpriteSource(), size=None)(pairs) == ["first"] * 6
    for pair, (clips, instruction) in zip(pairs, seen, strict=True):
        assert instruction == by_name[pair.first.episode].instruction
        for clip, frames in zip((pair.first, pair.second), clips, strict=True):
            episode = by_name[clip.episode]
            for view, expected in episode.views.items():
                assert np.array_equal(frames[view], expected[clip.frames(len(episode))])


def test_progress_that_was_not_recorded_is_named() -> None:
    with pytest.raises(DataError, match="its progress was not recorded; name a judge"):
        progress_comparer({"a": None}, 0.0, 0)


def test_a_batch_has_the_comparisons_between_its_episodes() -> None:
    labeled = label(DATA[:3], ["compared"])
    names = [episode.name for episode in labeled]
    whole = {name: Clip(episode=name, start=0, end=1) for name in names}
    end = Clip(episode=names[1], start=1, end=1)
    comparisons = [
        ClipComparison(first=whole[names[0]], second=end, goal="x", answer="first"),
        ClipComparison(first=whole[names[2]], second=whole[names[0]], goal="x", answer="second"),
    ]
    index = ComparisonIndex(comparisons, labeled)
    last = len(labeled[1]) - 1
    batch = index.select(np.array([1, 0, 1]), np.array([[0, last, 3], [0, 5, 9], [0, 1, 2]]))
    assert batch.rows.tolist() == [[1, 0]] and batch.first_is_better.tolist() == [True]
    assert batch.is_inside.tolist() == [[[True] * 3, [False, True, False]]], "the frames of `Clip.frames`"
    assert not len(index.select(np.array([1, 0]), np.array([[0, 1, 2], [0, 5, 9]])).rows), "no frame of the clip"
    replayed = index.select(np.array([0, 5]), np.array([[0, 1, 2], [0, 5, 9]]))
    assert not len(replayed.rows), "a replayed episode is not compared"


def test_every_batch_has_comparisons_however_many_episodes_there_are() -> None:
    many = episodes(60)
    pair = draw_clip_pairs({many[3].name: "x", many[57].name: "x"}, 1, 0.1, seed=0)[0]
    sampler = LabeledBatchSampler(
        label(many, ["compared"]), ("front", "top"), comparisons=[replace(pair, answer="second")]
    )
    for seed in range(5):
        pairs = sampler.sample(8, 6, np.random.default_rng(seed)).comparisons
        assert pairs.rows.tolist() == [[0, 1]] and pairs.first_is_better.tolist() == [False]


def test_repeated_names_are_refused() -> None:
    with pytest.raises(DataError, match="1 of these have a name twice"):
        match_comparisons(compare_all(40), [*DATA, DATA[0]])


def test_the_loss_is_that_of_bradley_terry_on_mean_progress() -> None:
    comparisons = [comparison for comparison in compare_all(60) if comparison.is_decided]
    batch = LabeledBatchSampler(label(DATA, ["compared"]), ("front", "top"), comparisons=comparisons).sample(
        12, 6, np.random.default_rng(0)
    )
    pairs = batch.comparisons
    assert len(pairs.rows)
    curve = np.random.default_rng(1).random((12, 6)).astype(np.float32)
    curve[:, 0] = 0
    hops = torch.zeros(12, 6, 6)
    hops[:, 0] = torch.from_numpy(curve)
    unused = torch.zeros(12, 6)
    outputs = TrainingOutputs(
        **{name: unused for name in TrainingOutputs.__dataclass_fields__ if name != "hops"}, hops=hops
    )
    loss = LossContext(outputs, batch, "compared", np.random.default_rng(0)).comparison()
    expected = []
    for (a, b), (in_a, in_b), better in zip(pairs.rows, pairs.is_inside, pairs.first_is_better, strict=True):
        logit = COMPARISON_RATIONALITY * (curve[a][in_a].mean() - curve[b][in_b].mean())
        expected.append(math.log1p(math.exp(-logit if better else logit)))
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)


def test_a_model_learns_order_from_comparisons_alone(tmp_path: Path) -> None:
    """No progress, outcome or subtask is in the data."""
    pairs = draw_clip_pairs(GOALS, 400, 0.25, seed=0)
    compare_clips(pairs, progress_comparer(PROGRESS, 0.0, 0), tmp_path, NullReporter())
    unlabeled = [replace(episode, progress=None, success=None, subtasks=()) for episode in DATA]
    config = TrainConfig(
        image_size=(32, 32), steps=80, batch_size=8, label_schemes=("compared",), comparisons=tmp_path, fusion="forward"
    )
    net = train(unlabeled, config, RunFolder.open(tmp_path / "run"), NullReporter())
    unseen = episodes(6, start=100)
    progress = np.concatenate([score.progress for score in score_episodes(net, unseen)])
    truth = np.concatenate([episode.progress for episode in unseen])
    assert roc_auc(progress, truth > 0.5) > 0.8


@pytest.mark.parametrize("settings", [{"label_schemes": ("compared",)}, {"comparisons": Path("x")}])
def test_scheme_and_table_belong_together(settings: dict) -> None:
    with pytest.raises(UserError, match=r"label_schemes=\[compared\] learns the table in comparisons="):
        TrainConfig(**settings)
