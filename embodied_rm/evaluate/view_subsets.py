"""The same model with some of its eyes shut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from embodied_rm.models.base import Memory, Reference, RewardModel
from embodied_rm.types import Progress, Views


@dataclass(frozen=True)
class Seeing:
    """A `RewardModel` to which only the named views are present, of episodes, goals and references alike."""

    model: RewardModel
    views: tuple[str, ...]

    def begin(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Reference | None = None,
    ) -> Memory:
        """As the model's own."""
        goal = None if goal is None else self.masked(goal)
        reference = None if reference is None else replace(reference, views=self.masked(reference.views))
        return self.model.begin(self.masked(views), instructions, goal, reference)

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, Memory]:
        """As the model's own."""
        return self.model.advance(memory, self.masked(views))

    def masked(self, views: Views) -> Views:
        """The views, the others marked as absent."""
        seen = np.array([name in self.views for name in views.names])
        before = np.ones(views.frames.shape[:2], bool) if views.present is None else views.present
        return replace(views, present=before & seen)


def subsets(views: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every choice of one view or more, all of them first."""
    for count in range(len(views), 0, -1):
        yield from combinations(views, count)
