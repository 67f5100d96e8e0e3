"""Which of two segments somebody would rather see: by what they show, or by what they lose.

Source: RL-VLM-F (preferences of a judge, Bradley-Terry); Knox et al., Models of human preference (arXiv 2206.02231): by
partial return (the sum of what each moment is worth) or by regret (what the segment gave away: V at its start - V at
its end, as the reward comes only at the end). The judge is the true progress, or any curve in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.hops import true_progress
from embodied_rm.labels.targets import Targets, outcome_only, watched
from embodied_rm.types import Array, Episode, IntArray

if TYPE_CHECKING:
    from torch import Tensor

Potential = TypeVar("Potential", Array, "Tensor")
"""The judge's, or that of a net which learns from the judge."""
Kind = TypeVar("Kind", bound=np.generic)
RATIONALITY = 4.0
"""How surely the judge takes the better segment: log-odds for a difference of 1."""


def label(episodes: Sequence[Episode], judge: Callable[[Episode], Array] = true_progress) -> list[Targets]:
    """The targets of every episode, whose worth from frame to frame, float32 [T] in [0, 1], the `judge` says: a reward
    model or a person in the place of the truth, who does not say when a task is done: then the outcome tells, where
    it is recorded. Raises `DataError` naming an episode whose true progress is unknown, where that is asked for."""
    if judge is true_progress:
        return [watched(episode, judge(episode)) for episode in episodes]
    return [outcome_only(episode, judge(episode)) for episode in episodes]


def partial_return(segment: Potential) -> Potential:
    """The sum over the moments of segments [..., L], each worth its progress."""
    return segment.sum(-1)


def regret(segment: Potential) -> Potential:
    """What segments [..., L] of progress gave away, in [-1, 1]; negative: they gained."""
    return segment[..., 0] - segment[..., -1]


def bradley_terry(one: npt.ArrayLike, other: npt.ArrayLike) -> Array:
    """float32 in (0, 1): how likely the judge takes `one`, by what each of the two is worth."""
    return (1 / (1 + np.exp(-RATIONALITY * (np.asarray(one) - np.asarray(other))))).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Segments:
    """B pairs of segments of L moments."""

    row: IntArray
    """int64 [B, 2, 1]: the episode that each is from, both with the same goal."""
    moment: IntArray
    """int64 [B, 2, L]: its moments, in the order of time."""

    def of(self, curve: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
        """[B, 2, L]: a curve [B, M] along the segments."""
        return curve[self.row, self.moment]


def draw_segments(at: IntArray, goals: Sequence[str], rng: np.random.Generator) -> Segments:
    """For every episode of a batch a segment of half its moments (at frames `at` [B, M]), and one of an episode with
    the same goal, itself if the batch has no other."""
    count, moments = at.shape
    length = max(moments // 2, 2)
    names = np.array(goals)
    rivals = [np.flatnonzero((names == names[b]) & (np.arange(count) != b)) for b in range(count)]
    other = [int(rng.choice(rival)) if len(rival) else b for b, rival in enumerate(rivals)]
    row = np.stack([np.arange(count), other], axis=1)[..., None]
    begin = rng.integers(0, moments - length + 1, size=(count, 2, 1))
    order = np.argsort(at, axis=1, kind="stable")
    return Segments(row=row, moment=order[row, begin + np.arange(length)])
