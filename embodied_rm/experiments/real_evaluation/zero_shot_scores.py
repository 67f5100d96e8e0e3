"""A model that reads an instruction, on recordings that it was never trained on: the curves and what they say."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from embodied_rm.data.lab_split import LAB_COLUMN, LabSplit
from embodied_rm.data.source import EpisodeMeta, EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.evaluate.success_metrics import ood_rate
from embodied_rm.experiments.real_evaluation.pair_scores import predicts_done
from embodied_rm.experiments.real_evaluation.real_sets import stack_views
from embodied_rm.experiments.real_evaluation.video_cases import (
    HALF,
    NEVER_DONE,
    RETRIED,
    REVERSED,
    UNDONE,
    WHOLE,
    first_half,
    order_of_last,
    try_again,
    undo,
)
from embodied_rm.metrics import roc_auc
from embodied_rm.models.reward_model import DescribedRewardModel, RewardModel
from embodied_rm.models.scoring import score_episodes, score_video
from embodied_rm.models.zero_shot.zero_shot_model import ZeroShotModel
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode, Frames, Views

SCORING_RATE_HZ = 10.0  # frames per second that are read
NUM_WRONG_SENTENCES = 2  # per episode
FUNCTION_WORDS = frozenset(
    {"a", "an", "and", "are", "at", "away", "by", "down", "for", "forward", "from", "in", "inside", "into", "is"}
    | {"it", "its", "left", "middle", "move", "of", "off", "on", "one", "onto", "out", "over", "pick", "place"}
    | {"put", "remove", "right", "side", "take", "that", "the", "then", "this", "to", "top", "turn", "up", "with"}
)
"""Words that name neither an object nor a verb of its own."""


@dataclass
class ZeroShotScores:
    """Results of all episodes; one entry per episode."""

    order: list[float] = field(default_factory=list)  # VOC
    reversed_order: list[float] = field(default_factory=list)  # of the same video backward
    undone_order: list[float] = field(default_factory=list)  # of the way back, after the video
    retried_order: list[float] = field(default_factory=list)  # of the video, after its first half and the way back
    whole: list[float] = field(default_factory=list)  # last progress of the video
    half: list[float] = field(default_factory=list)  # last progress of its first half
    wrong: list[list[float]] = field(default_factory=list)  # the same under other instructions of the lab
    done: dict[str, list[float]] = field(default_factory=dict)  # case -> 1 where it is predicted done, else 0
    ood: list[float] = field(default_factory=list)  # fraction of the frames that are out of distribution
    seconds: float = 0.0  # time to score all whole videos, s
    video_seconds: float = 0.0  # their length, s

    def summary(self) -> dict[str, float]:
        """Metric -> value."""
        values = {
            "order": fmean(self.order),
            "reversed": fmean(self.reversed_order),
            "undone": fmean(self.undone_order),
            "second attempt": fmean(self.retried_order),
            "whole above half": auc(self.whole, self.half),
            "whole above its own half": fmean(float(w > h) for w, h in zip(self.whole, self.half, strict=True)),
        }
        if pairs := [(right, value) for right, row in zip(self.whole, self.wrong, strict=True) for value in row]:
            values["right sentence above wrong"] = auc(self.whole, [value for _, value in pairs])
            values["right sentence above wrong, same video"] = fmean(
                float(right > value) + 0.5 * (right == value) for right, value in pairs
            )
        values |= {f"done: {case}": fmean(entries) for case, entries in self.done.items()}
        if not np.isnan(self.ood).all():
            values["out of distribution"] = float(np.nanmean(self.ood))
        return values | {
            "episodes": float(len(self.order)),
            "seconds per minute of video": 60 * self.seconds / self.video_seconds,
        }


def auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Area under the ROC curve."""
    return roc_auc(np.array([*positive, *negative]), np.arange(len(positive) + len(negative)) < len(positive))


def measure_zero_shot(
    model: DescribedRewardModel, source: EpisodeSource, rows: Sequence[int], description: str, reporter: Reporter
) -> dict[str, float]:
    """Score episodes, show the table, and return its values."""
    if not rows:
        raise DataError(f"{description}: there is no episode to score: all of them failed, or are of other labs")
    make_model = model.with_cache if isinstance(model, ZeroShotModel) else lambda: model
    stream = score_episodes_zero_shot(make_model, source, rows, model.input_spec.image_size)
    *_, scores = reporter.track(stream, description, total=len(rows))
    summary = scores.summary()
    reporter.table(description, {name: f"{value:.3f}" for name, value in summary.items()})
    return summary


def score_episodes_zero_shot(
    make_model: Callable[[], RewardModel],
    source: EpisodeSource,
    rows: Sequence[int],
    image_size: tuple[int, int] | None,
    seed: int = 0,
) -> Iterator[ZeroShotScores]:
    """Yield the results so far after each episode of a source.

    Args:
        make_model: Makes the reward model, once per episode, so that one may cache what it encodes.
        source: The episodes.
        rows: Those that are scored. Wrong sentences are those of the others of the same lab.
        image_size: Height and width at which they are read; None: as stored.
        seed: Of the choice of wrong sentences.
    """
    scores, rng = ZeroShotScores(), np.random.default_rng(seed)
    for row in rows:
        episode = read_at_scoring_rate(source, row, image_size)
        wrong = wrong_sentences(source.meta, rows, row, rng)
        score_one(scores, make_model(), episode, wrong)
        scores.video_seconds += source.meta[row].length / source.frame_rate(row)
        yield scores


def read_at_scoring_rate(source: EpisodeSource, row: int, image_size: tuple[int, int] | None) -> Episode:
    """Read an episode, thinned to about `SCORING_RATE_HZ`."""
    stride = max(1, round(source.frame_rate(row) / SCORING_RATE_HZ))
    return source.episode(row, size=image_size, stride=stride)


def rows_to_judge(source: EpisodeSource, labs: LabSplit) -> list[int]:
    """Return the episodes of the test labs; of a dataset without labs, those that did not fail."""
    if any(LAB_COLUMN in meta.metadata for meta in source.meta):
        return labs.rows(source, "test")
    return [row for row, meta in enumerate(source.meta) if meta.success is not False]


def score_one(scores: ZeroShotScores, model: RewardModel, episode: Episode, wrong: Sequence[str]) -> None:
    """Score one success in all cases."""
    names = tuple(episode.views)
    frames = stack_views(episode, names)
    start_s = time.perf_counter()
    score_video(model, episode.instruction, [Views(names=names, frames=frames)])
    scores.seconds += time.perf_counter() - start_s
    # All cases in one batch: the images are those that were just encoded.
    make_video = {WHOLE: lambda whole: whole, HALF: first_half, UNDONE: undo, RETRIED: try_again, **NEVER_DONE}
    videos = [show(episode, make(frames)) for make in make_video.values()]
    videos += [replace(videos[0], instruction=sentence) for sentence in wrong]
    outputs = score_episodes(model, videos)
    cases = dict(zip(make_video, outputs, strict=False))
    whole, half = cases[WHOLE], cases[HALF]
    scores.ood.append(ood_rate([whole]))
    scores.order.append(order_of_last(whole.progress, len(frames)))
    scores.reversed_order.append(order_of_last(cases[REVERSED].progress, len(frames)))
    scores.undone_order.append(order_of_last(cases[UNDONE].progress, len(frames)))
    scores.retried_order.append(order_of_last(cases[RETRIED].progress, len(frames)))
    scores.whole.append(float(whole.progress[-1]))
    scores.half.append(float(half.progress[-1]))
    for case in (WHOLE, HALF, *NEVER_DONE):
        scores.done.setdefault(case, []).append(predicts_done(cases[case]))
    scores.wrong.append([float(output.progress[-1]) for output in outputs[len(make_video) :]])


def show(episode: Episode, frames: Frames) -> Episode:
    """Return the episode with the frames uint8 [T, V, H, W, 3] of its views."""
    return episode.with_views({name: frames[:, v] for v, name in enumerate(episode.views)})


def wrong_sentences(meta: Sequence[EpisodeMeta], rows: Sequence[int], row: int, rng: np.random.Generator) -> list[str]:
    """Draw instructions of other episodes of the same lab, with another verb or another object."""
    own = meta[row]
    others = sorted(
        {
            meta[other].instruction
            for other in rows
            if meta[other].metadata.get(LAB_COLUMN) == own.metadata.get(LAB_COLUMN) and differs(own, meta[other])
        }
    )
    if not others:
        return []
    return [others[i] for i in rng.choice(len(others), min(NUM_WRONG_SENTENCES, len(others)), replace=False)]


def differs(own: EpisodeMeta, other: EpisodeMeta) -> bool:
    """Return whether two instructions have no object in common, or another verb."""
    if own.instruction == other.instruction:
        return False
    return own.metadata.get("verb") != other.metadata.get("verb") or not (
        object_words(own.instruction) & object_words(other.instruction)
    )


def object_words(sentence: str) -> set[str]:
    """Return the words of a sentence that may name an object."""
    return set(re.findall("[a-z]+", sentence.lower())) - FUNCTION_WORDS
