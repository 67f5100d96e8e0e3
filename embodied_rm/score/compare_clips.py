"""Comparisons of clips of a dataset: their table, and the answers of a judge.

An interrupted run goes on. Pairs that a judge did not answer are asked again then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from embodied_rm.data.source import EpisodeSource, ImageSize
from embodied_rm.labels.comparisons import (
    COMPARISONS_FILE,
    Clip,
    ClipAnswer,
    ClipComparison,
    append_comparisons,
    read_answers,
    write_comparisons,
)
from embodied_rm.models.judges.clip_comparison import ClipFrames, ClipJudge
from embodied_rm.run_folder import Reporter

BATCH_PAIRS = 16  # pairs that are compared, and written, together
CompareFn = Callable[[Sequence[ClipComparison]], list[ClipAnswer]]


def compare_clips(
    pairs: Sequence[ClipComparison], compare: CompareFn, folder: Path, reporter: Reporter
) -> Counter[str]:
    """Compare the pairs whose answers a run folder lacks, in order, and return how often each answer was given.

    Raises:
        UserError: The folder has comparisons of other pairs.
    """
    path = folder / COMPARISONS_FILE
    done = read_answers(path, pairs)
    again = [row for row, comparison in enumerate(done) if comparison.answer == "unanswered"]
    for rows in batches(again):
        for row, answer in zip(rows, compare([pairs[row] for row in rows]), strict=True):
            done[row] = replace(pairs[row], answer=answer)
    write_comparisons(path, done)  # also without the incomplete line of a killed run
    groups = batches(range(len(done), len(pairs)))
    for rows in reporter.track(groups, f"compare {BATCH_PAIRS} pairs", total=len(groups)):
        group = [pairs[row] for row in rows]
        answered = [replace(pair, answer=answer) for pair, answer in zip(group, compare(group), strict=True)]
        append_comparisons(path, answered)
        done += answered
    return Counter(comparison.answer for comparison in done)


def batches(rows: Sequence[int]) -> list[Sequence[int]]:
    """Split rows into groups that are compared together."""
    return [rows[start : start + BATCH_PAIRS] for start in range(0, len(rows), BATCH_PAIRS)]


def judge_comparer(
    judge: ClipJudge, source: EpisodeSource, views: Sequence[str] = (), size: ImageSize | None = None
) -> CompareFn:
    """Return a function that shows pairs of clips to a judge.

    Args:
        judge: The judge.
        source: The episodes; only the frames of the clips are decoded.
        views: Views that are shown; empty: all.
        size: (height, width) of the images; None: as stored.
    """
    rows = {meta.name: row for row, meta in enumerate(source.meta)}

    def read_clip(clip: Clip) -> ClipFrames:
        row = rows[clip.episode]
        frames = clip.frames(source.meta[row].length)
        names = views or source.views
        images = {
            view: source.read_frames(row, frames.start, frames.stop, views=[view], size=size).frames for view in names
        }
        return {view: np.asarray(image)[:, 0] for view, image in images.items()}

    def compare(pairs: Sequence[ClipComparison]) -> list[ClipAnswer]:
        clips = [(read_clip(pair.first), read_clip(pair.second)) for pair in pairs]
        return judge.compare(clips, [source.meta[rows[pair.first.episode]].instruction for pair in pairs])

    return compare
