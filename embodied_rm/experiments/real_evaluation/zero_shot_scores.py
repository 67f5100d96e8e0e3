"""A model that reads an instruction, on recordings that it was never trained on: the curves and what they say."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from embodied_rm.data.lab_split import LAB_COLUMN, LabSplit
from embodied_rm.data.source import EpisodeMeta, EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.evaluate.success_metrics import ood_rate
from embodied_rm.experiments.real_evaluation.pair_scores import predicts_done
from embodied_rm.experiments.real_evaluation.real_sets import stack_views
from embodied_rm.experiments.real_evaluation.video_cases import HALF, NEVER_DONE, REVERSED, WHOLE, first_half
from embodied_rm.metrics import roc_auc, voc
from embodied_rm.models.reward_model import DescribedRewardModel, RewardModel
from embodied_rm.models.scoring import score_video
from embodied_rm.models.zero_shot.zero_shot_model import ZeroShotModel
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode, Frames, RewardOutput, Views

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
        stride = max(1, round(source.frame_rate(row) / SCORING_RATE_HZ))
        episode = source.episode(row, size=image_size, stride=stride)
        wrong = wrong_sentences(source.meta, rows, row, rng)
        score_one(scores, make_model(), episode, wrong)
        scores.video_seconds += source.meta[row].length / source.frame_rate(row)
        yield scores


def rows_to_judge(source: EpisodeSource, labs: LabSplit) -> list[int]:
    """Return the episodes of the test labs; of a dataset without labs, those that did not fail."""
    if any(LAB_COLUMN in meta.metadata for meta in source.meta):
        return labs.rows(source, "test")
    return [row for row, meta in enumerate(source.meta) if meta.success is not False]


def score_one(scores: ZeroShotScores, model: RewardModel, episode: Episode, wrong: Sequence[str]) -> None:
    """Score one success in all cases."""
    names = tuple(episode.views)
    frames = stack_views(episode, names)

    def predict(video: Frames, instruction: str = episode.instruction) -> RewardOutput:
        return score_video(model, instruction, [Views(names=names, frames=video)])

    start_s = time.perf_counter()
    output = predict(frames)
    scores.seconds += time.perf_counter() - start_s
    scores.ood.append(ood_rate([output]))
    half = predict(first_half(frames))
    scores.order.append(float(np.nan_to_num(voc(output.progress))))
    scores.whole.append(float(output.progress[-1]))
    scores.half.append(float(half.progress[-1]))
    cases = {WHOLE: output, HALF: half, **{case: predict(make(frames)) for case, make in NEVER_DONE.items()}}
    scores.reversed_order.append(float(np.nan_to_num(voc(cases[REVERSED].progress))))
    for case, prediction in cases.items():
        scores.done.setdefault(case, []).append(predicts_done(prediction))
    scores.wrong.append([float(predict(frames, sentence).progress[-1]) for sentence in wrong])


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
