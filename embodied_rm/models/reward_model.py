"""The one contract that matters: begin at reset, advance once per new frame set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import UserError
from embodied_rm.types import Array, RewardOutput, Views

if TYPE_CHECKING:
    from torch import Tensor

RowIndices = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """A demonstration of the task for each of N environments: R of its moments, in order, whose progress is known."""

    views: Views
    """What its cameras showed: N times R rows, the moments of the first environment first."""
    instructions: tuple[str, ...]
    """What was asked for in each demonstration."""
    progress: Array
    """float32 [N, R] in [0, 1]."""

    def __post_init__(self) -> None:
        shape = self.progress.shape
        if len(shape) != 2 or 0 in shape or len(self.views) != shape[0] * shape[1] or len(self) != shape[0]:
            raise UserError(
                f"a reference needs progress [N, R], N instructions and views of N x R moments: got progress "
                f"{list(shape)}, {len(self)} instructions, views of {len(self.views)}"
            )

    def __len__(self) -> int:
        return len(self.instructions)


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What images a model is shown."""

    views: tuple[str, ...] | None = None
    """Views that it knows, of which it needs one; None: it takes any."""
    image_size: tuple[int, int] | None = None
    """Height and width that it judges at; None: as they were recorded."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Optional features of a reward model."""

    predicts_success: bool = True
    """Whether `RewardOutput.success` holds probabilities. False: the model has no notion of "done"."""
    accepts_tensors: bool = False
    """Whether `Views.frames` may be a tensor, on any device."""
    serializable_state: bool = False
    """Whether its states are `SerializableState`."""
    interval_scale: float | None = None
    """Half-width of the 90 % interval of progress, in uncertainties (`metrics.interval`). None: not calibrated."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Number of frames without a prediction so far, by reason."""


class RewardState(Protocol):
    """What the past contributes, one row an environment. Opaque to callers; never shared between rows."""

    def __len__(self) -> int: ...

    def take(self, rows: RowIndices) -> RewardState:
        """A copy of the given rows, in that order."""
        ...

    def put(self, rows: RowIndices, other: RewardState) -> RewardState:
        """This memory with `rows` replaced by the rows of `other`."""
        ...

    def potential(self) -> npt.NDArray[np.float32]:
        """float32 [N]: the carried fused potential, the Phi of the state last scored."""
        ...


@runtime_checkable
class EmbeddingState(Protocol):
    """A memory that tells what the model made of the states last scored; not every model's does."""

    def embedding(self) -> npt.NDArray[np.float32]:
        """float32 [N, D]: near where states look alike in the light of the instruction."""
        ...


@runtime_checkable
class SerializableState(Protocol):
    """A memory that a file can hold, so that episodes go on after a restart; not every model's is."""

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that later predictions depend on, by name."""
        ...

    def from_state_dict(self, tensors: dict[str, Tensor]) -> RewardState:
        """The memory whose `state` that is; this one is another of the same model."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """Scores views of N environments against N instructions, causally. Rows are independent of each other.

    Example:
        >>> state = model.reset(first_views, ["lift the red cube"])
        >>> output, state = model.step(state, next_views)
    """

    @property
    def capabilities(self) -> Capabilities: ...

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> RewardState:
        """Open N episodes at their first frames. `potential()` of the result is Phi of the first state: 0.

        `goal` shows for each how the task looks when done, `reference` how it was done another time; a model may
        leave them aside. Raises `UserError` when the lengths differ or a view name is unknown to the model.
        """
        ...

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Judge one new frame set per row. Pure: the given memory is not changed; no future frame is seen."""
        ...


@runtime_checkable
class StepsMany(Protocol):
    """A model that judges frames of one episode together where they are all there; not every model does."""

    def step_many(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """What `advance` says of these frames, a row a frame, one after the other; `memory` has one row."""
        ...


@runtime_checkable
class VideoRewardModel(Protocol):
    """A model that judges a video when it is whole, and has no say before: nobody can be paid by it."""

    def score_video(self, instruction: str, blocks: Iterable[Views]) -> RewardOutput:
        """The prediction of every frame; the rows of each block are the next frames."""
        ...


@runtime_checkable
class DescribedRewardModel(RewardModel, Protocol):
    """A reward model that says what it is to be shown, so that recordings can be read for it."""

    @property
    def input_spec(self) -> InputSpec: ...
