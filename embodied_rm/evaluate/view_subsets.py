"""A reward model with a subset of its views."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from embodied_rm.models.reward_model import Capabilities, Demonstration, RewardModel, RewardState
from embodied_rm.types import RewardOutput, Views


@dataclass(frozen=True)
class MaskedViews:
    """A `RewardModel` that gets only the named views of episodes, goals and demonstrations."""

    model: RewardModel
    views: tuple[str, ...]

    @property
    def capabilities(self) -> Capabilities:
        """Those of the model without its calibration, which was made with all views."""
        return self.model.capabilities.without_calibration()

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> RewardState:
        """See `RewardModel`."""
        goal = None if goal is None else self.mask_views(goal)
        reference = None if reference is None else replace(reference, views=self.mask_views(reference.views))
        return self.model.reset(self.mask_views(views), instructions, goal, reference)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """See `RewardModel`."""
        return self.model.step(state, self.mask_views(views))

    def mask_views(self, views: Views) -> Views:
        """Return the views with all others marked as absent."""
        selected = np.array([name in self.views for name in views.names])
        present = np.ones(views.frames.shape[:2], bool) if views.present is None else views.present
        return replace(views, present=present & selected)


def iter_view_subsets(views: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Iterate over all non-empty subsets of the views, larger ones first."""
    for count in range(len(views), 0, -1):
        yield from combinations(views, count)
