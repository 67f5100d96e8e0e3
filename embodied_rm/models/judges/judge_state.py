"""State of a judge between the timesteps of an episode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import pack_json, unpack_json
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.reward_model import RewardState, RowIndices
from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class EpisodeContext:
    """One episode at the current timestep."""

    instruction: str
    view_names: tuple[str, ...]
    history: FrameHistory
    """Frames before the current one."""
    first: MultiViewFrame
    previous: MultiViewFrame
    """The last scored frame."""
    current: MultiViewFrame
    goal: MultiViewFrame | None = None
    potential: float = 0.0
    """Potential of the last scored frame, in [0, 1]."""
    success: float = 0.0
    """Probability of success at the last scored frame."""

    def with_score(self, potential: float, success: float) -> EpisodeContext:
        """Return the context after the current frame was scored."""
        return replace(self, potential=potential, success=success, previous=self.current)

    def advance(self, frame: MultiViewFrame) -> EpisodeContext:
        """Return the context of the next timestep. The episode starts at its first visible frame."""
        if not self.first.visible.any():
            return replace(self, first=frame, previous=frame, current=frame)
        return replace(self, history=self.history.append(self.current), current=frame) if frame.visible.any() else self


@dataclass(frozen=True)
class JudgeState:
    """The `RewardState` of a judge: one row per episode, at its last timestep."""

    contexts: tuple[EpisodeContext, ...]

    def __len__(self) -> int:
        return len(self.contexts)

    def take(self, rows: RowIndices) -> JudgeState:
        """Return a copy of the given rows, in that order."""
        return JudgeState(tuple(self.contexts[int(row)] for row in np.arange(len(self))[rows]))

    def put(self, rows: RowIndices, other: RewardState) -> JudgeState:
        """Return this state with `rows` replaced by the rows of `other`."""
        assert isinstance(other, JudgeState)
        contexts = list(self.contexts)
        for row, context in zip(np.arange(len(self))[rows], other.contexts, strict=True):
            contexts[int(row)] = context
        return JudgeState(tuple(contexts))

    def potential(self) -> Array:
        """Return the potential of the last scored frames, float32 [N]."""
        return np.array([context.potential for context in self.contexts], np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the images and metadata of every row."""
        return {
            f"{i}.{name}": tensor
            for i, context in enumerate(self.contexts)
            for name, tensor in _serialize_context(context).items()
        }

    def from_state_dict(self, tensors: dict[str, Tensor]) -> JudgeState:
        """Return the state of a `state_dict`."""
        count = len({name.split(".")[0] for name in tensors})
        return JudgeState(
            tuple(
                _deserialize_context({key.split(".", 1)[1]: tensor for key, tensor in _row_tensors(tensors, i)})
                for i in range(count)
            )
        )


def _row_tensors(tensors: dict[str, Tensor], row: int) -> Iterable[tuple[str, Tensor]]:
    return ((name, tensor) for name, tensor in tensors.items() if name.startswith(f"{row}."))


def _serialize_context(context: EpisodeContext) -> dict[str, Tensor]:
    multi_view_frames = [
        context.first,
        context.previous,
        context.current,
        *([] if context.goal is None else [context.goal]),
        *context.history.frames,
    ]
    metadata = {
        "instruction": context.instruction,
        "view_names": context.view_names,
        "potential": context.potential,
        "success": context.success,
        "goal": context.goal is not None,
        "capacity": context.history.capacity,
        "stride": context.history.stride,
        "length": context.history.length,
    }
    return {
        "metadata": pack_json(metadata),
        "frames": torch.from_numpy(np.stack([multi_view_frame.frames for multi_view_frame in multi_view_frames])),
        "visible": torch.from_numpy(np.stack([multi_view_frame.visible for multi_view_frame in multi_view_frames])),
    }


def _deserialize_context(tensors: dict[str, Tensor]) -> EpisodeContext:
    metadata = unpack_json(tensors["metadata"])
    frames, visible = tensors["frames"].numpy(), tensors["visible"].numpy()
    multi_view_frames: Sequence[MultiViewFrame] = [
        MultiViewFrame(frame, frame_visible) for frame, frame_visible in zip(frames, visible, strict=True)
    ]
    first, previous, current, *remaining = multi_view_frames
    goal = remaining.pop(0) if metadata["goal"] else None
    history = FrameHistory(
        capacity=metadata["capacity"], frames=tuple(remaining), stride=metadata["stride"], length=metadata["length"]
    )
    return EpisodeContext(
        instruction=metadata["instruction"],
        view_names=tuple(metadata["view_names"]),
        history=history,
        first=first,
        previous=previous,
        current=current,
        goal=goal,
        potential=metadata["potential"],
        success=metadata["success"],
    )
