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
from embodied_rm.score.compare_clips import CompareFn, compare_clips, judge_comparer
from embodied_rm.score.ranked_factors import PROGRESS_ALONE, RankedFactor, RecordedFacts, ranked_comparer
from embodied_rm.training import TrainConfig, train
from embodied_rm.training.batches import LabeledBatchSampler
from embodied_rm.training.clip_batch import ComparisonIndex
from embodied_rm.training.forward import TrainingOutputs
from embodied_rm.training.objective import COMPARISON_RATIONALITY, LossContext
from embodied_rm.types import Views

DATA = episodes(12)
GOALS = {episode.name: episode.instruction for episode in DATA}
RECORDED = {episode.name: RecordedFacts(length=len(episode), progress=episode.progress) for episode in DATA}


def progress_comparer(flip_rate: float) -> CompareFn:
    return ranked_comparer(RECORDED, PROGRESS_ALONE, flip_rate, seed=0)


class SpriteSource:
    """The sprites as a stored dataset."""

    views = ("front", "top")
    meta = tuple(EpisodeMeta(name=e.name, length=len(e), instruction=e.instruction) for e in DATA)

    def read_frames(self, index, start, stop, *, views, size):
        frames = np.stack([DATA[index].views[view][start:stop] for view in views], axis=1)
        return Views(names=tuple(views), frames=frames)


def compare_all(count: int = 40, flip_rate: float = 0.0) -> list[ClipComparison]:
    pairs = draw_clip_pairs(GOALS, count, 0.25, seed=0)
    answers = progress_comparer(flip_rate)(pairs)
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
        progress = RECORDED[clip.episode].require("progress")
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


def test_a_last_line_that_is_whole_counts_without_the_end_of_its_line(tmp_path: Path) -> None:
    comparisons = compare_all(3)
    path = tmp_path / COMPARISONS_FILE
    append_comparisons(path, comparisons)
    path.write_text(path.read_text().rstrip("\n"))
    assert read_comparisons(path) == comparisons


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start", "5.0"),
        ("start", "-3"),
        ("start", '"x"'),
        ("start", "true"),
        ("start", "0.99"),
        ("end", "null"),
        ("end", "NaN"),
        ("end", "1e999"),
        ("end", "1" * 5000),
        ("end", "[" * 100_000),
        ("episode", "7"),
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_clip_that_is_none_is_named(tmp_path: Path, field: str, value: str, end: str) -> None:
    clip = {"episode": '"a"', "start": "0.1", "end": "0.5"}
    texts = [", ".join(f'"{k}": {v}' for k, v in c.items()) for c in ({**clip, field: value}, clip)]
    line = f'{{"first": {{{texts[0]}}}, "second": {{{texts[1]}}}, "goal": "x"}}'
    path = tmp_path / "pairs.jsonl"
    path.write_text(line + end)
    if not end and value.startswith(("[", "11")):
        return  # as if cut
    with pytest.raises(DataError, match=r"pairs\.jsonl, line 1: not a comparison of two clips"):
        read_comparisons(path)


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
    pairs, compare = draw_clip_pairs(GOALS, 40, 0.25, seed=0), progress_comparer(0.1)
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
    pairs, right = draw_clip_pairs(GOALS, 20, 0.25, seed=0), progress_comparer(0.0)
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


def test_what_was_not_recorded_is_named() -> None:
    for factor in ("success", "progress", "effort"):
        factors = [RankedFactor("duration"), RankedFactor(factor)]
        with pytest.raises(DataError, match=rf"^a: its \w+ was not recorded; leave {factor} out of factors="):
            ranked_comparer({"a": RecordedFacts(length=9)}, factors, 0.0, 0)


def draw_recorded(count: int, action_scale: float = 1.0) -> dict[str, RecordedFacts]:
    rng = np.random.default_rng(0)
    return {
        f"e{i}": RecordedFacts(
            length=int(rng.integers(10, 14)),
            progress=np.linspace(0, rng.random(), 20, dtype=np.float32),
            action=action_scale * rng.normal(size=(20, 2)).astype(np.float32),
            success=bool(rng.random() < 0.5),
        )
        for i in range(count)
    }


def whole_pairs(count: int) -> list[ClipComparison]:
    return draw_clip_pairs({f"e{i}": "lift" for i in range(count)}, 300, 1.0, seed=1)


def test_the_first_factor_that_differs_by_its_margin_decides() -> None:
    recorded, pairs = draw_recorded(20), whole_pairs(20)
    factors = [RankedFactor.parse(text) for text in ("success", "progress:0.1", "duration")]
    for pair, answer in zip(pairs, ranked_comparer(recorded, factors, 0.0, 0)(pairs), strict=True):
        a, b = recorded[pair.first.episode], recorded[pair.second.episode]
        assert a.progress is not None and b.progress is not None
        means = [float(facts.progress[: facts.length].mean()) for facts in (a, b)]  # type: ignore[index]
        if a.success != b.success:
            expected = "first" if a.success else "second"
        elif abs(means[0] - means[1]) > 0.1:
            expected = "first" if means[0] > means[1] else "second"
        else:
            expected = "neither" if a.length == b.length else "first" if a.length < b.length else "second"
        assert answer == expected


def test_no_scale_of_a_factor_outvotes_a_more_important_one() -> None:
    # HERON's point: a weighted sum changes its mind when the unit of effort changes, a ranking does not.
    pairs, factors = whole_pairs(20), [RankedFactor("success"), RankedFactor("progress"), RankedFactor("effort")]
    answers = [ranked_comparer(draw_recorded(20, scale), factors, 0.0, 0)(pairs) for scale in (1e-3, 1.0, 1e3)]
    assert answers[0] == answers[1] == answers[2] and set(answers[0]) == {"first", "second"}


def test_a_success_counts_for_the_clip_that_has_its_end() -> None:
    recorded = {"a": RecordedFacts(length=10, success=True), "b": RecordedFacts(length=10, success=True)}
    compare = ranked_comparer(recorded, [RankedFactor("success")], 0.0, 0)
    end, start = Clip(episode="a", start=0.5, end=1), Clip(episode="b", start=0, end=0.5)
    assert compare([ClipComparison(first=end, second=start, goal="lift")]) == ["first"]
    assert compare([ClipComparison(first=start, second=replace(start, episode="a"), goal="lift")]) == ["neither"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("force", "factors must be among success, progress, duration, effort, got 'force'"),
        ("progress:x", "a factor is <name> or <name>:<margin>, got 'progress:x'"),
        ("progress:-1", "the margin of a factor must be >= 0"),
        ("progress:nan", "the margin of a factor must be >= 0"),
        ("progress:inf", "the margin of a factor must be >= 0"),
    ],
)
def test_a_factor_that_is_none_is_named(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RankedFactor.parse(text)


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
    compare_clips(pairs, progress_comparer(0.0), tmp_path, NullReporter())
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
