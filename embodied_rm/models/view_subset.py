"""A reward model that sees some of the views only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from embodied_rm.models.reward_model import Capabilities, Demonstration, RewardModel, RewardState
from embodied_rm.types import RewardOutput, Views


@dataclass(frozen=True)
class ViewSubset:
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
        goal = None if goal is None else goal.select_views(self.views)
        if reference is not None:
            reference = replace(reference, views=reference.views.select_views(self.views))
        return self.model.reset(views.select_views(self.views), instructions, goal, reference)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """See `RewardModel`."""
        return self.model.step(state, views.select_views(self.views))
