"""The contract of every reward model: `reset` at the first frames, then one `step` per new frame set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from embodied_rm.client.shaping import select_success_threshold
from embodied_rm.errors import UserError
from embodied_rm.types import Array, BoolArray, RewardOutput, Views

if TYPE_CHECKING:
    from torch import Tensor

RowIndices = npt.NDArray[np.int64]
UNKNOWN_SUBTASK = -1


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """A demonstration of the task for each of N environments: R of its frames, in order, with known progress."""

    views: Views
    """Camera images of N times R frames, those of the first environment first."""
    instructions: tuple[str, ...]
    """Instruction of each demonstration."""
    progress: Array
    """float32 [N, R] in [0, 1]."""

    def __post_init__(self) -> None:
        shape = self.progress.shape
        if len(shape) != 2 or 0 in shape or len(self.views) != shape[0] * shape[1] or len(self) != shape[0]:
            raise UserError(
                f"a reference needs progress [N, R], N instructions and views of N x R frames: got progress "
                f"{list(shape)}, {len(self)} instructions, views of {len(self.views)}"
            )

    def __len__(self) -> int:
        return len(self.instructions)


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """The images that a model takes."""

    views: tuple[str, ...] | None = None
    """View names that the model knows; it needs at least one of them. None: any view."""
    image_size: tuple[int, int] | None = None
    """Height and width in pixels. None: the recorded size."""
    frame_rate: float | None = None
    """Frames per second at which recordings are read for the model. None: all frames."""

    def frame_stride(self, fps: float) -> int:
        """Return n such that every n-th frame of a recording at `fps` frames per second has the model's rate."""
        return 1 if self.frame_rate is None else max(1, round(fps / self.frame_rate))

    def select_views(self, available: Iterable[str], source: str) -> list[str]:
        """Return the available views that the model knows; `UserError` that names the source if there are none."""
        names = tuple(available)
        known = [name for name in names if self.views is None or name in self.views]
        if self.views is not None and not known:
            renamed = f"{{{names[0] if names else '...'}:{self.views[0]}}}"
            raise UserError(
                f"the model knows the views {', '.join(self.views)}; {source} has {', '.join(names)}: name yours "
                f"like them (features.views={renamed}), or teach them to it by a demonstration (embodied-rm adapt)"
            )
        return known


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
    success_threshold: float | None = None
    """Success probability in (0, 1] from which a frame counts as done. None: not calibrated."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Number of frames without a prediction so far, by reason."""

    def select_success_threshold(self, setting: float | None = None) -> float:
        """Return the threshold that applies: that of the user, else of the model, else 0.5."""
        return select_success_threshold(setting, self.success_threshold)

    def without_calibration(self) -> Capabilities:
        """Return them without interval and threshold, for predictions that differ in kind from the calibrated ones."""
        return replace(self, interval_scale=None, success_threshold=None)


def check_reset(
    num_envs: int, instructions: Sequence[str], goal: Views | None = None, reference: Demonstration | None = None
) -> None:
    """Raise `UserError` unless `RewardModel.reset` has one instruction (goal, reference) per environment."""
    batches = {"instruction": instructions, "goal": goal, "reference": reference}
    counts = {name: len(batch) for name, batch in batches.items() if batch is not None}
    if any(count != num_envs for count in counts.values()):
        given = ", ".join(f"{count} {name}s" for name, count in counts.items())
        label = " and ".join(counts)
        raise UserError(f"reset needs one {label} per environment: got views of {num_envs}, {given}")


def check_reset_by_video(
    num_envs: int, instructions: Sequence[str], goal: Views | None, reference: Demonstration | None
) -> None:
    """As `check_reset`, for a model that takes no goal image and no reference."""
    check_reset(num_envs, instructions)
    if goal is not None or reference is not None:
        given = "goal image" if goal is not None else "demonstration"
        raise UserError(f"this model takes no {given}: leave it out, or use a model of embodied-rm train")


def check_step(num_rows: int, num_envs: int) -> None:
    """Raise `UserError` unless the views are those of as many environments as the state has rows."""
    if num_envs != num_rows:
        raise UserError(f"step needs views of {num_rows} environments, got {num_envs}")


def make_plain_output(progress: Array, valid: BoolArray, success: Array) -> RewardOutput:
    """Return the prediction of a model without subtasks and uncertainty."""
    subtask, uncertainty = np.full(len(progress), UNKNOWN_SUBTASK, np.int64), np.zeros(len(progress), np.float32)
    return RewardOutput(progress=progress, valid=valid, subtask=subtask, success=success, uncertainty=uncertainty)


class RewardState(Protocol):
    """State of N episodes between two steps, one row per environment. Opaque to callers; rows share nothing."""

    def __len__(self) -> int: ...

    def take(self, rows: RowIndices) -> RewardState:
        """Return a copy of the given rows, in that order."""
        ...

    def put(self, rows: RowIndices, other: RewardState) -> RewardState:
        """Return this state with `rows` replaced by the rows of `other`."""
        ...

    def potential(self) -> npt.NDArray[np.float32]:
        """float32 [N]: the fused potential of the frames last scored (Phi in potential-based shaping)."""
        ...


@runtime_checkable
class EmbeddingState(Protocol):
    """A state that exposes the embedding of the frames last scored. Optional."""

    def embedding(self) -> npt.NDArray[np.float32]:
        """float32 [N, D]; near each other where two frames look alike with respect to the instruction."""
        ...


@runtime_checkable
class SerializableState(Protocol):
    """A state that can be stored in a file, so that episodes continue after a restart. Optional."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that later predictions depend on, by name."""
        ...

    def from_state_dict(self, tensors: dict[str, Tensor]) -> RewardState:
        """Return the state with these tensors; `self` is any state of the same model."""
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
        """Start N episodes at their first frames, whose potential is 0 unless the model `ScoresFirstFrame`.

        Args:
            views: First frames, one row per environment.
            instructions: One instruction per environment.
            goal: Goal images, one row per environment. A model may ignore or refuse them.
            reference: Demonstrations, one per environment. A model may ignore or refuse them.

        Returns:
            The state before the first `step`.

        Raises:
            UserError: If the lengths differ or a view name is unknown to the model.
        """
        ...

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Score one new frame set per row. Pure: `state` is not changed and no future frame is used.

        Args:
            state: The state after the previous frame.
            views: The new frames, one row per environment.

        Returns:
            The prediction of each row, and the next state.
        """
        ...


@runtime_checkable
class StepsMany(Protocol):
    """A model that scores several frames of one episode in one call. Optional."""

    def step_many(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Return what `step` returns for these frames in turn, one row per frame. `state` has one row."""
        ...


@runtime_checkable
class ScoresFirstFrame(Protocol):
    """A model whose first frame has a progress of its own, so that a video may start anywhere. Optional.

    The potential of the state that its `reset` returns is that progress, and not 0.
    """

    def first_output(self, state: RewardState) -> RewardOutput:
        """Return the prediction for the first frames, from the state that `reset` returned."""
        ...


def reference_argument(reference: Demonstration | None) -> dict[str, Demonstration]:
    """Return the keyword argument of `reset` for a reference: none without one, as a model may lack the parameter."""
    return {} if reference is None else {"reference": reference}


def first_outputs(model: RewardModel, state: RewardState) -> RewardOutput:
    """Return the prediction for the first frames: no progress and no success, unless the model has its own.

    Args:
        model: The reward model.
        state: What its `reset` returned for N episodes.

    Returns:
        The prediction, one row per episode.
    """
    if isinstance(model, ScoresFirstFrame):
        return model.first_output(state)
    progress, success, uncertainty = np.zeros((3, len(state)), np.float32)
    valid, subtask = np.ones(len(state), bool), np.zeros(len(state), np.int64)
    return RewardOutput(progress=progress, valid=valid, subtask=subtask, success=success, uncertainty=uncertainty)


@runtime_checkable
class VideoRewardModel(Protocol):
    """A model that scores complete videos only. It is not causal, so no reward can be computed from it online."""

    def score_video(self, instruction: str, blocks: Iterable[Views]) -> RewardOutput:
        """Score every frame of a video.

        Args:
            instruction: The instruction of the video.
            blocks: Consecutive blocks of frames, one row per frame.

        Returns:
            The prediction of each frame.
        """
        ...


@runtime_checkable
class DescribedRewardModel(RewardModel, Protocol):
    """A reward model that describes its input, so that recordings can be decoded for it."""

    @property
    def input_spec(self) -> InputSpec: ...
