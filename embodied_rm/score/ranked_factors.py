"""Comparisons of clips by what was recorded: factors in order of importance, of which the first that differs decides.

A factor needs a direction and a margin, and no weight: no rescaling of one can outvote a more important one. Source:
HERON (Bukharin et al., arXiv 2309.02632), whose decision tree this is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.comparisons import Clip, ClipAnswer, ClipComparison
from embodied_rm.score.compare_clips import CompareFn
from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class RecordedFacts:
    """What was recorded of an episode of T frames; None: it was not."""

    length: int  # T
    progress: Array | None = None  # float32 [T]
    action: Array | None = None  # float32 [T, A]
    success: bool | None = None

    def require(self, name: str) -> Array:
        """Return a column; `DataError` if it was not recorded."""
        column: Array | None = getattr(self, name)
        if column is None:
            raise DataError(f"its {name} was not recorded")
        return column


def clip_success(facts: RecordedFacts, frames: slice) -> float:
    """1 if the clip has the last frame of a success, else 0."""
    if facts.success is None:
        raise DataError("its success was not recorded")
    return float(facts.success and frames.stop == facts.length)


FACTORS: Mapping[str, Callable[[RecordedFacts, slice], float]] = {
    "success": clip_success,
    "progress": lambda facts, frames: float(facts.require("progress")[frames].mean()),
    "duration": lambda facts, frames: float(frames.start - frames.stop),
    "effort": lambda facts, frames: -float(np.square(facts.require("action")[frames]).mean()),
}
"""Name of a factor -> its value for the frames of a clip, larger for the better one: more of success and progress,
fewer frames, and a smaller mean square of the actions."""


@dataclass(frozen=True)
class RankedFactor:
    """A factor, and the difference up to which two clips count as equal."""

    name: str
    margin: float = 0.0

    @classmethod
    def parse(cls, text: str) -> RankedFactor:
        """Parse `<name>` or `<name>:<margin>`; raise `UserError` if it is not one."""
        name, _, margin = text.partition(":")
        try:
            factor = cls(name, float(margin or 0))
        except ValueError:
            raise UserError(f"a factor is <name> or <name>:<margin>, got {text!r}") from None
        if factor.name not in FACTORS:
            raise UserError(f"factors must be among {', '.join(FACTORS)}, got {name!r}")
        if not 0 <= factor.margin < float("inf"):
            raise UserError(f"the margin of a factor must be >= 0, got {text!r}")
        return factor


PROGRESS_ALONE = (RankedFactor("progress"),)


def ranked_comparer(
    recorded: Mapping[str, RecordedFacts], factors: Sequence[RankedFactor], flip_rate: float, seed: int
) -> CompareFn:
    """Return a function that compares clips by ranked factors, and is wrong at a known rate.

    Whether a pair is answered wrongly depends on the pair and the seed alone.

    Args:
        recorded: Name of each episode -> what was recorded of it.
        factors: From the most important one. Clips in which none differs have the answer "neither".
        flip_rate: Share of wrong answers, in [0, 1].
        seed: Of the wrong answers.

    Raises:
        DataError: Something that a factor needs was not recorded.
    """
    for name, facts in recorded.items():
        for factor in factors:
            try:
                FACTORS[factor.name](facts, slice(0, facts.length))
            except DataError as error:
                raise DataError(f"{name}: {error}; leave {factor.name} out of factors=, or name a judge") from None

    def value(factor: RankedFactor, clip: Clip) -> float:
        facts = recorded[clip.episode]
        return FACTORS[factor.name](facts, clip.frames(facts.length))

    def compare_pair(pair: ClipComparison) -> ClipAnswer:
        for factor in factors:
            difference = value(factor, pair.first) - value(factor, pair.second)
            if abs(difference) > factor.margin:
                key = [seed, *repr((pair.first, pair.second)).encode()]
                is_wrong = np.random.default_rng(key).random() < flip_rate
                return "first" if (difference > 0) != is_wrong else "second"
        return "neither"

    return lambda pairs: [compare_pair(pair) for pair in pairs]
