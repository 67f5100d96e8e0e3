"""Comparisons of clips of a dataset, by a judge or by recorded progress; an interrupted run goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.comparisons import (
    COMPARISONS_FILE,
    Clip,
    ClipAnswer,
    ClipComparison,
    read_comparisons,
    write_comparisons,
)
from embodied_rm.models.judges.clip_comparison import ClipFrames, ClipJudge
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode

BATCH_PAIRS = 16  # pairs that are compared, and written, together
MAX_OPEN_EPISODES = 64
EpisodeReader = Callable[[str], Episode]  # name of an episode -> the episode
CompareFn = Callable[[Sequence[ClipComparison]], list[ClipAnswer]]


def compare_clips(
    pairs: Sequence[ClipComparison], compare: CompareFn, folder: Path, reporter: Reporter
) -> Counter[str]:
    """Compare the pairs whose answers a run folder lacks, in order, and return how often each answer was given.

    Raises:
        UserError: The folder has comparisons of other pairs.
    """
    path = folder / COMPARISONS_FILE
    done = read_comparisons(path) if path.exists() else []
    if [without_answer(comparison) for comparison in done] != list(pairs[: len(done)]):
        raise UserError(f"{path} has comparisons of other pairs: name another out=, or delete it")
    truncate_to_lines(path, len(done))
    remaining = pairs[len(done) :]
    starts = range(0, len(remaining), BATCH_PAIRS)
    for start in reporter.track(starts, f"compare {BATCH_PAIRS} pairs", total=len(starts)):
        group = remaining[start : start + BATCH_PAIRS]
        answered = [replace(pair, answer=answer) for pair, answer in zip(group, compare(group), strict=True)]
        write_comparisons(path, answered)
        done += answered
    return Counter(comparison.answer for comparison in done)


def without_answer(comparison: ClipComparison) -> ClipComparison:
    """Return the pair of a comparison."""
    return replace(comparison, answer="unanswered")


def truncate_to_lines(path: Path, count: int) -> None:
    """Remove an incomplete last line, which a killed run has left."""
    if path.exists():
        lines = path.read_bytes().split(b"\n")
        path.write_bytes(b"".join(line + b"\n" for line in lines[:count]))


def judge_comparer(judge: ClipJudge, read_episode: EpisodeReader) -> CompareFn:
    """Return a function that shows pairs of clips to a judge."""
    read = lru_cache(MAX_OPEN_EPISODES)(read_episode)

    def compare(pairs: Sequence[ClipComparison]) -> list[ClipAnswer]:
        clips = [(cut_clip(read(p.first.episode), p.first), cut_clip(read(p.second.episode), p.second)) for p in pairs]
        return judge.compare(clips, [read(pair.first.episode).instruction for pair in pairs])

    return compare


def cut_clip(episode: Episode, clip: Clip) -> ClipFrames:
    """Return view -> frames of a clip."""
    return {name: frames[clip.frames(len(episode))] for name, frames in episode.views.items()}


def progress_comparer(episodes: Iterable[Episode], flip_rate: float, seed: int) -> CompareFn:
    """Return a function that compares clips by their mean recorded progress, and is wrong at a known rate.

    Whether a pair is answered wrongly depends on the pair and the seed alone.

    Raises:
        DataError: An episode has no recorded progress.
    """
    by_name = {episode.name: episode for episode in episodes}
    for episode in by_name.values():
        if episode.progress is None:
            raise DataError(f"{episode.name}: its progress was not recorded; name a judge that sees the clips: judge=")

    def mean_progress(clip: Clip) -> float:
        episode = by_name[clip.episode]
        assert episode.progress is not None
        return float(episode.progress[clip.frames(len(episode))].mean())

    def compare_pair(pair: ClipComparison) -> ClipAnswer:
        difference = mean_progress(pair.first) - mean_progress(pair.second)
        if not difference:
            return "neither"
        key = [seed, *repr((pair.first, pair.second)).encode()]
        is_wrong = np.random.default_rng(key).random() < flip_rate
        return "first" if (difference > 0) != is_wrong else "second"

    return lambda pairs: [compare_pair(pair) for pair in pairs]
