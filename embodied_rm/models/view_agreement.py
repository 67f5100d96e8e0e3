"""A success that each camera alone must show too: whoever fools one of them is not paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, strip_prefix
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import (
    Capabilities,
    Demonstration,
    EmbeddingState,
    RewardModel,
    RewardState,
    RowIndices,
    ScoresFirstFrame,
    SerializableState,
)
from embodied_rm.models.view_subset import ViewSubset
from embodied_rm.types import Array, RewardOutput, Views


@dataclass(frozen=True)
class ViewAgreementModel:
    """A `RewardModel` that scores all views together, and each view alone.

    The probability of success is the smallest of all these predictions. Everything else is that of all views together.
    A view that cannot be scored has no say.
    """

    model: RewardModel

    def __post_init__(self) -> None:
        if isinstance(self.model, ScoresFirstFrame):
            name = type(self.model).__name__
            raise UserError(f"success_in_each_view needs a model that scores frame by frame from 0, not a {name}")

    @property
    def capabilities(self) -> Capabilities:
        """Those of the model."""
        return self.model.capabilities

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> ViewAgreementState:
        """Start N episodes, once with all views and once with each. Raises `UserError` for a demonstration."""
        if reference is not None:
            raise UserError("success_in_each_view takes no demonstration beside the frames")
        singles = tuple(model.reset(views, instructions, goal) for model in self._each_alone(views))
        return ViewAgreementState(joint=self.model.reset(views, instructions, goal), singles=singles)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, ViewAgreementState]:
        """Score one new frame set per row."""
        assert isinstance(state, ViewAgreementState)
        output, joint = self.model.step(state.joint, views)
        success, singles = output.success, []
        for model, view_state in zip(self._each_alone(views), state.singles, strict=True):
            single, next_state = model.step(view_state, views)
            success = np.where(single.valid, np.minimum(success, single.success), success)
            singles.append(next_state)
        return replace(output, success=success), ViewAgreementState(joint=joint, singles=tuple(singles))

    def _each_alone(self, views: Views) -> list[ViewSubset]:
        return [ViewSubset(self.model, (name,)) for name in views.names]


@dataclass(frozen=True, kw_only=True)
class ViewAgreementState:
    """The `RewardState` of `ViewAgreementModel`: that of all views together, and one per view."""

    joint: RewardState
    singles: tuple[RewardState, ...]

    def __len__(self) -> int:
        return len(self.joint)

    def take(self, rows: RowIndices) -> ViewAgreementState:
        """Return a copy of the given rows, in that order."""
        singles = tuple(state.take(rows) for state in self.singles)
        return ViewAgreementState(joint=self.joint.take(rows), singles=singles)

    def put(self, rows: RowIndices, other: RewardState) -> ViewAgreementState:
        """Return this state with `rows` replaced by the rows of `other`."""
        assert isinstance(other, ViewAgreementState)
        pairs = zip(self.singles, other.singles, strict=True)
        singles = tuple(state.put(rows, single) for state, single in pairs)
        return ViewAgreementState(joint=self.joint.put(rows, other.joint), singles=singles)

    def potential(self) -> Array:
        """float32 [N]: the potential of all views together."""
        return self.joint.potential()

    def embedding(self) -> Array:
        """float32 [N, D]: the embedding of all views together; `UserError` without any."""
        if not isinstance(self.joint, EmbeddingState):
            raise UserError("this needs a reward model whose states have embeddings, such as ProgressNet")
        return self.joint.embedding()

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors by name; the model's states are serializable."""
        tensors: dict[str, Tensor] = {}
        for index, state in enumerate((self.joint, *self.singles)):
            assert isinstance(state, SerializableState)
            tensors |= add_prefix(str(index), state.state_dict())
        return tensors

    def from_state_dict(self, tensors: dict[str, Tensor]) -> ViewAgreementState:
        """Return the state with these tensors."""
        states = []
        for index, state in enumerate((self.joint, *self.singles)):
            assert isinstance(state, SerializableState)
            states.append(state.from_state_dict(strip_prefix(str(index), tensors)))
        return ViewAgreementState(joint=states[0], singles=tuple(states[1:]))
