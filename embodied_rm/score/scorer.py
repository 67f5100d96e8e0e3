"""Who judges, and what becomes of each episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np

from embodied_rm.data.film import films, shown
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.stride import kept_frames
from embodied_rm.errors import DataError
from embodied_rm.models.base import Judge
from embodied_rm.models.fold import fold_film
from embodied_rm.run import Reporter
from embodied_rm.score.sight import views_for
from embodied_rm.types import Episode, IntArray, Progress, Views


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A model and what it is shown beside a recording."""

    model: Judge
    goal: Episode | None = None
    """Its last frame shows how what is asked for looks when done."""
    reference: Episode | None = None
    """How it was done another time."""

    @property
    def interval_scale(self) -> float | None:
        """That of a calibrated model."""
        return getattr(self.model, "interval_scale", None)

    @property
    def unscored(self) -> Counter[str]:
        """Of a judge that may fail to answer: how many frames it has left unscored so far, by why."""
        return Counter(getattr(self.model, "faults", {}))


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What became of an episode."""

    row: int
    curve: Progress | DataError
    """The judgement of its frames, or why it cannot be read to its end."""
    unscored: Counter[str] = field(default_factory=Counter)
    """Frames that the judge left unscored, by why."""


def judged(
    scorer: Scorer, source: EpisodeSource, rows: Iterable[int], every: int, reporter: Reporter, blocks: int | None
) -> Iterator[Judged]:
    """The episodes `rows` (no two alike) in their order; the next ones are decoded while one is judged.

    `blocks`: how many they have together, if that is known. Raises `UserError` when the source has none of the model's
    views.
    """
    sight = scorer.model.sight
    reading = films(source, rows, views_for(sight, source), sight.image_size)
    for row, film in groupby(reporter.track(reading, "score", blocks), key=itemgetter(0)):
        meta, before = source.meta[row], scorer.unscored
        seen = kept_frames(meta.length, every)
        frames = thinned(shown(film), seen)
        try:
            curve = fold_film(scorer.model, meta.instruction, frames, scorer.goal, scorer.reference)
        except DataError as error:
            yield Judged(row=row, curve=error)
            continue
        yield Judged(row=row, curve=carried(curve, seen, meta.length), unscored=scorer.unscored - before)


def thinned(blocks: Iterable[Views], kept: IntArray) -> Iterator[Views]:
    """Of a film that comes in blocks, the frames with these numbers."""
    start = 0
    for views in blocks:
        mine = kept[(kept >= start) & (kept < start + len(views))] - start
        start += len(views)
        if len(mine):
            yield views if len(mine) == len(views) else views.rows(mine)


def carried(curve: Progress, kept: IntArray, length: int) -> Progress:
    """A judgement of the frames `kept` as one of all `length` frames: between two of them the former one holds."""
    latest = np.searchsorted(kept, np.arange(length), side="right") - 1
    return Progress(**{name: column[latest] for name, column in vars(curve).items()})
