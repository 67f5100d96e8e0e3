"""Episodes with the targets that labelling schemes give their frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embodied_rm.labels.identity import end_of
from embodied_rm.labels.schemes import Labeller, chosen
from embodied_rm.labels.steps import distinct_goal_of, goal_of, sentences, sentences_of, task_of
from embodied_rm.labels.targets import Targets
from embodied_rm.types import Array, BoolArray, Episode, IntArray


@dataclass(frozen=True, kw_only=True)
class LabelledEpisode:
    """What training needs of one episode."""

    views: Mapping[str, Any]
    """View name -> array uint8 [T, H, W, 3], all of one size; or what a frozen tower sees, float16 [T, C, h, w]."""
    sentences: tuple[str, ...]
    """See `sentences_of`."""
    task: str
    """See `task_of`."""
    goal: str
    """See `goal_of`."""
    distinct_goal: str | None
    """See `distinct_goal_of`."""
    fulfils: tuple[str, ...]
    """Other goals that are fulfilled whenever this one is."""
    end: str
    """See `end_of`."""
    targets: Mapping[str, Targets]
    """Labelling scheme -> what it says of the T frames. The first one's are those below."""

    def __len__(self) -> int:
        return len(self.progress)

    def sentence(self, rng: np.random.Generator) -> str:
        """One of the sentences. Draws nothing where there is only one."""
        return self.sentences[rng.integers(len(self.sentences)) if len(self.sentences) > 1 else 0]

    @property
    def _first(self) -> Targets:
        return next(iter(self.targets.values()))

    @property
    def progress(self) -> Array:
        """float32 [T]; over it the moments of a batch are spread."""
        return self._first.progress

    @property
    def step(self) -> IntArray:
        """int64 [T]."""
        return self._first.step

    @property
    def done(self) -> BoolArray:
        """bool [T]; at the last frame, whether the episode is a success."""
        return self._first.done


def label(
    episodes: Sequence[Episode], schemes: Sequence[str] = ("hops",), others: Mapping[str, Labeller] | None = None
) -> list[LabelledEpisode]:
    """The targets of every episode, by each scheme; `others`: scheme -> who labels in its place.

    Raises `UserError` for an unknown scheme, `DataError` naming an episode and what it lacks for one.
    """
    own = {name: scheme.label for name, scheme in chosen(schemes).items()}
    columns = {name: (others or {}).get(name, labeller)(episodes) for name, labeller in own.items()}
    return [
        LabelledEpisode(
            views=episode.views,
            sentences=sentences_of(episode),
            task=task_of(episode),
            goal=goal_of(episode),
            distinct_goal=distinct_goal_of(episode),
            fulfils=sentences(episode, "fulfils"),
            end=end_of(episode),
            targets={name: column[i] for name, column in columns.items()},
        )
        for i, episode in enumerate(episodes)
    ]
