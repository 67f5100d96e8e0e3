"""State of a judge between the timesteps of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, pack_json, strip_prefix, unpack_json
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.reward_model import RewardState, RowIndices
from embodied_rm.types import Array

CONTEXT_FIELDS = ("instruction", "view_names", "previous_time", "potential", "success", "num_scores")
HISTORY_FIELDS = ("capacity", "stride", "length")
"""Fields of `EpisodeContext` and `FrameHistory` that are stored as JSON."""


@dataclass(frozen=True, kw_only=True)
class EpisodeContext:
    """One episode at the current timestep."""

    instruction: str
    view_names: tuple[str, ...]
    history: FrameHistory  # frames before the current one
    first: MultiViewFrame
    previous: MultiViewFrame  # the last scored frame
    current: MultiViewFrame
    previous_time: int = 0  # number of frames before the last scored one
    goal: MultiViewFrame | None = None
    potential: float = 0.0  # potential of the last scored frame; outputs clip it to [0, 1]
    success: float = 0.0  # probability of success at the last scored frame
    num_scores: int = 0  # number of scored frames so far

    @property
    def progress(self) -> float:
        """The potential in [0, 1]."""
        return min(max(self.potential, 0.0), 1.0)

    def with_score(self, potential: float, success: float) -> EpisodeContext:
        """Return the context after the current frame was scored."""
        scored = self.with_current_as_previous()
        return replace(scored, potential=potential, success=success, num_scores=self.num_scores + 1)

    def with_current_as_previous(self) -> EpisodeContext:
        """Return the context in which the current frame is the last scored one."""
        return replace(self, previous=self.current, previous_time=self.history.length)

    def with_last_score(self, last: EpisodeContext) -> EpisodeContext:
        """Return the context with the last scored frame, and its score, of another context."""
        names = ("previous", "previous_time") if last.first.visible.any() else ()
        return replace(self, **{name: getattr(last, name) for name in (*names, "potential", "success", "num_scores")})

    def kept_frames(self) -> dict[int, MultiViewFrame]:
        """Return the number of frames before it -> frame: the history, the last scored one and the current one."""
        stored = {i * self.history.stride: frame for i, frame in enumerate(self.history.frames)}
        return {**stored, self.previous_time: self.previous, self.history.length: self.current}

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
        return np.array([context.progress for context in self.contexts], np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the images and metadata of every row."""
        tensors: dict[str, Tensor] = {}
        for i, context in enumerate(self.contexts):
            tensors |= add_prefix(str(i), _serialize_context(context))
        return tensors

    def from_state_dict(self, tensors: dict[str, Tensor]) -> JudgeState:
        """Return the state of a `state_dict`."""
        count = len({name.split(".")[0] for name in tensors})
        return JudgeState(tuple(_deserialize_context(strip_prefix(str(i), tensors)) for i in range(count)))


def _serialize_context(context: EpisodeContext) -> dict[str, Tensor]:
    goal = () if context.goal is None else (context.goal,)
    stored_frames = [context.first, context.previous, context.current, *goal, *context.history.frames]
    metadata = {
        **{name: getattr(context, name) for name in CONTEXT_FIELDS},
        **{name: getattr(context.history, name) for name in HISTORY_FIELDS},
        "goal": context.goal is not None,
    }
    frames, visible = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*stored_frames, strict=True))
    return {"metadata": pack_json(metadata), "frames": frames, "visible": visible}


def _deserialize_context(tensors: Mapping[str, Tensor]) -> EpisodeContext:
    metadata = unpack_json(tensors["metadata"])
    frames, visible = tensors["frames"].numpy(), tensors["visible"].numpy()
    first, previous, current, *remaining = map(MultiViewFrame, frames, visible)
    goal = remaining.pop(0) if metadata["goal"] else None
    history = FrameHistory(frames=tuple(remaining), **{name: metadata[name] for name in HISTORY_FIELDS})
    fields = {name: metadata[name] for name in CONTEXT_FIELDS} | {"view_names": tuple(metadata["view_names"])}
    return EpisodeContext(history=history, first=first, previous=previous, current=current, goal=goal, **fields)
