"""Batches of moments, drawn from labelled episodes in memory. Numpy only; every draw has its generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.foreign import ForeignInstructions
from embodied_rm.labels.labelled import LabelledEpisode
from embodied_rm.labels.moments import sample_moments
from embodied_rm.labels.targets import Targets, stacked
from embodied_rm.labels.wording import Wording
from embodied_rm.types import BoolArray, IntArray

FOREIGN = 3
"""Instructions that want something else, which the end of every episode is shown under."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B episodes at M moments each; moment 0 is the first frame, the last one a goal picture."""

    frames: npt.NDArray[Any]
    """uint8 [B, M, V, H, W, 3], or maps float16 [B, M, V, C, h, w]; a view that an episode lacks is black."""
    present: BoolArray
    """bool [B, M, V]."""
    instructions: tuple[str, ...]
    foreign: tuple[tuple[str, ...], ...]
    """[`FOREIGN`][B]: for each episode instructions that want something else; its own where no other goal is known."""
    foreign_known: BoolArray
    """bool [`FOREIGN`, B]: whether the last frame is surely not what `foreign` wants, because it is what the episode's
    own instruction wants. A failure may by chance be what somebody else asked for."""
    goals: tuple[str, ...]
    """See `goal_of`."""
    at: IntArray
    """int64 [B, M - 1]: the frame of every moment but the goal."""
    targets: Mapping[str, Targets]
    """Labelling scheme -> what it says of these moments, [B, M - 1]."""
    has_goal: BoolArray
    """bool [B]: whether the last moment shows the task done, in another film of the same goal. Where there is none,
    that moment must not be used: who knows how this film ends has nothing to judge."""


class Batches:
    """Draws batches from labelled episodes; the same generator state gives the same batch."""

    def __init__(
        self,
        episodes: Sequence[LabelledEpisode],
        views: Sequence[str],
        rehearsed: Sequence[LabelledEpisode] = (),
        foreign: Sequence[str] = (),
        words: float = 0.0,
        other_words: Sequence[str] = (),
    ) -> None:
        """Pictures of all episodes must have one size. `views`: names of the V axis.

        `rehearsed`: episodes that make up half of every batch, whatever their number; none: no such half. `foreign`:
        instructions of the first episode's task that want what none of the episodes does. `words`, `other_words`: share
        of the words that are replaced, and by which, see `Wording`.
        """
        recorded, self.views = [*episodes, *rehearsed], tuple(views)
        self.episodes = with_all_sentences(recorded)
        told = ((e.task, " | ".join(sorted(e.sentences)), sentence) for e in recorded for sentence in e.sentences)
        self._wording = Wording(told, other_words, words)
        self._pools = [pool for pool in (range(len(episodes)), range(len(episodes), len(self.episodes))) if pool]
        self._share = shares(self.episodes)
        first = next(iter(self.episodes[0].views.values()))
        self._size, self._kind = first.shape[1:], first.dtype
        self._done: dict[str, list[int]] = {}
        for i, episode in enumerate(self.episodes):
            if episode.done[-1]:
                self._done.setdefault(episode.goal, []).append(i)
        further = [(self.episodes[0].task, text) for text in foreign]
        self._foreign = ForeignInstructions(self.episodes, self._wording, further)

    def draw(
        self,
        size: int,
        moments: int,
        rng: np.random.Generator,
        lanes: Sequence[IntArray] | None = None,
        shown: slice = slice(None),
    ) -> Batch:
        """A batch of `size` episodes at `moments` moments and a goal.

        `lanes`: which episodes each part of the batch is drawn from, goals too; None: from all. `shown`: the rows whose
        pictures are looked at; those of the others are black.
        """
        pools = self._rows(size, rng, self._pools if lanes is None else lanes)
        rows = np.concatenate(pools)
        drawn = [self.episodes[row] for row in rows]
        at = [sample_moments(episode.progress, moments, rng) for episode in drawn]
        among = [None if lanes is None else set(lanes[i].tolist()) for i in range(len(pools))]
        goals = [self._goal(int(row), rng, held) for pool, held in zip(pools, among, strict=True) for row in pool]
        looked = range(size)[shown]
        shape = (size, moments + 1, len(self.views))
        frames, present = np.zeros((*shape, *self._size), self._kind), np.zeros(shape, bool)
        for b, (episode, goal) in enumerate(zip(drawn, goals, strict=True)):
            aim = episode if goal is None else goal
            last = np.array([len(aim) - 1])
            for film, moment, part in ((episode, at[b], slice(-1)), (aim, last, slice(-1, None))):
                self._show(film, moment, frames[b, part] if b in looked else None, present[b, part])
        foreign = [[self._foreign.draw(episode, rng) for episode in drawn] for _ in range(FOREIGN)]
        own = [e.sentences[0] for e in drawn]
        targets = [{name: t.at(m) for name, t in e.targets.items()} for e, m in zip(drawn, at, strict=True)]
        return Batch(
            frames=frames,
            present=present,
            instructions=tuple(self._wording.vary(e.sentence(rng), e.task, rng) for e in drawn),
            foreign=tuple(tuple(o if t is None else t for t, o in zip(texts, own, strict=True)) for texts in foreign),
            foreign_known=np.array([bool(e.done[-1]) for e in drawn])
            & np.array([[text is not None for text in texts] for texts in foreign]),
            goals=tuple(episode.goal for episode in drawn),
            at=np.stack(at),
            targets={name: stacked([row[name] for row in targets]) for name in targets[0]},
            has_goal=np.array([goal is not None for goal in goals]),
        )

    def _rows(self, size: int, rng: np.random.Generator, pools: Sequence[Sequence[int] | IntArray]) -> list[IntArray]:
        """Which episodes a batch has: as many of each pool, none twice while there are enough."""
        counts = [len(part) for part in np.array_split(np.arange(size), len(pools))]

        def drawn(pool: Sequence[int] | IntArray, count: int) -> IntArray:
            share = self._share[pool]
            return rng.choice(pool, count, replace=count > len(pool), p=share / share.sum())

        return [drawn(pool, count) for pool, count in zip(pools, counts, strict=True)]

    def _goal(self, row: int, rng: np.random.Generator, held: Set[int] | None) -> LabelledEpisode | None:
        """Another film that ends in success at the same goal, of those that are `held` (None: all), the same one in
        other words not counted; None: there is none."""
        episode = self.episodes[row]
        others = (i for i in self._done.get(episode.goal, ()) if held is None or i in held)
        done = [i for i in others if self.episodes[i].end != episode.end]
        return self.episodes[done[rng.integers(len(done))]] if done else None

    def _show(
        self, episode: LabelledEpisode, at: IntArray, frames: npt.NDArray[Any] | None, present: BoolArray
    ) -> None:
        """Write the episode's pictures at those moments into `frames` [M, V, ...], if there are any."""
        for v, name in enumerate(self.views):
            if name in episode.views:
                present[:, v] = True
                if frames is not None:
                    frames[:, v] = episode.views[name][at]


def with_all_sentences(episodes: Sequence[LabelledEpisode]) -> list[LabelledEpisode]:
    """The episodes, each with the sentences of all that want the same of the same task: whoever was told "red left,
    blue right" has also done "blue right, red left"."""
    known: dict[tuple[str, str], dict[str, None]] = {}
    for episode in episodes:
        if episode.distinct_goal is not None:
            known.setdefault((episode.task, episode.distinct_goal), {}).update(dict.fromkeys(episode.sentences))
    return [
        episode
        if episode.distinct_goal is None
        else replace(episode, sentences=tuple(known[episode.task, episode.distinct_goal]))
        for episode in episodes
    ]


def shares(episodes: Sequence[LabelledEpisode]) -> npt.NDArray[np.float64]:
    """[E]: how often each is drawn. A task of many goals comes more often than its episodes do, by the root of their
    number: which of twelve towers is wanted takes longer to learn than whether a drawer is."""
    goals: dict[str, set[str]] = {}
    for episode in episodes:
        goals.setdefault(episode.task, set()).add(episode.goal)
    return np.array([np.sqrt(len(goals[episode.task])) for episode in episodes])
