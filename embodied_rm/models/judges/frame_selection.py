"""Which frames of the video so far a question shows: evenly spaced ones, or the relevant and novel ones.

Source of the second: ReAgent-V (Zhou et al., arXiv 2506.01300), which chooses frames by their relevance to the task
before it asks. The choice here is greedy and causal: it depends on past frames only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from embodied_rm.models.judges.frame_history import MultiViewFrame
from embodied_rm.types import Array, IntArray

if TYPE_CHECKING:
    from embodied_rm.models.judges.judge_state import EpisodeContext


class FrameSelection(ABC):
    """Chooses frames of the video so far."""

    uses_previous_frame: bool = False  # whether the choice depends on the last scored frame

    @abstractmethod
    def select(self, context: EpisodeContext, max_frames: int) -> list[MultiViewFrame]:
        """Return up to `max_frames` frames in order of time, the current one last."""


class EvenFrames(FrameSelection):
    """Evenly spaced frames, from the first to the current one."""

    def select(self, context: EpisodeContext, max_frames: int) -> list[MultiViewFrame]:
        return context.history.sample_evenly(context.current, max_frames)


class FrameEncoder(Protocol):
    """Embeds frames, and compares them with an instruction."""

    def embed(self, frames: Sequence[MultiViewFrame]) -> Array:
        """Return unit vectors float32 [n, D] of frames with a visible view."""
        ...

    def relevance(self, embeddings: Array, instruction: str) -> Array:
        """Return the relevance in (0, 1], float32 [n], of frames to an instruction."""
        ...


class RelevantFrames(FrameSelection):
    """The current, the first and the last scored frame, and those with the largest relevance x novelty.

    Novelty is the distance of a frame's embedding to the nearest one already chosen. A frame that equals a chosen one
    is not shown again, so a still video has fewer frames.
    """

    uses_previous_frame = True

    def __init__(self, encoder: FrameEncoder) -> None:
        self.encoder = encoder

    def select(self, context: EpisodeContext, max_frames: int) -> list[MultiViewFrame]:
        frame_by_time = context.kept_frames()
        times = sorted(frame_by_time)
        frames = [frame_by_time[time] for time in times]
        always = dict.fromkeys((context.history.length, 0, context.previous_time))
        required = [times.index(time) for time in always][:max_frames]
        if len(frames) > max_frames > len(required):
            embeddings = self.encoder.embed(frames)
            relevance = self.encoder.relevance(embeddings, context.instruction)
            chosen = choose_greedily(embeddings, relevance, required, max_frames)
        else:
            chosen = np.array(required if len(frames) > max_frames else range(len(frames)))
        return [frames[index] for index in np.sort(chosen)]


def choose_greedily(embeddings: Array, relevance: Array, required: Sequence[int], max_frames: int) -> IntArray:
    """Return the indices of the required frames, and of others by decreasing relevance x novelty.

    Args:
        embeddings: float32 [n, D].
        relevance: float32 [n].
        required: Indices of the frames that are chosen first, at least one.
        max_frames: Maximum number of chosen frames.

    Returns:
        int64 [at most `max_frames`], in the order of choice. Of equal frames, the earliest is chosen.
    """
    chosen = list(required)
    novelty = np.min([distances(embeddings, index) for index in chosen], axis=0)
    while len(chosen) < max_frames:
        best = int((relevance * novelty).argmax())
        if novelty[best] == 0:
            break
        chosen.append(best)
        novelty = np.minimum(novelty, distances(embeddings, best))
    return np.array(chosen, np.int64)


def distances(embeddings: Array, index: int) -> Array:
    """Return the distance [n] of embeddings [n, D] to one of them; exactly 0 to equal ones."""
    return np.linalg.norm(embeddings - embeddings[index], axis=1)


EVEN, RELEVANT = "even", "relevant"
SELECTIONS = {
    EVEN: "evenly spaced frames",
    RELEVANT: "the first, previously scored and current frame, and those with the largest relevance x novelty",
}
"""Values of `judge.frames`."""
