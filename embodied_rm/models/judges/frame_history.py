"""Subsampled past frames of an episode, for queries that include earlier frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from embodied_rm.types import BoolArray, Frames

MAX_HISTORY_BYTES = 64 * 2**20
"""Size up to which the frames of an episode are all kept, all cameras together: 445 frames of 224 x 224 pixels."""


class MultiViewFrame(NamedTuple):
    """Images of all cameras of one environment at one timestep."""

    frames: Frames  # uint8 [V, H, W, 3]
    visible: BoolArray  # bool [V]: the views that are present and not of a single color

    def by_view(self, names: Sequence[str]) -> dict[str, Frames]:
        """Return view name -> image uint8 [H, W, 3] of the visible views."""
        return {name: frame for name, frame, visible in zip(names, self.frames, self.visible, strict=True) if visible}


@dataclass(frozen=True, kw_only=True)
class FrameHistory:
    """At most `capacity` frames of an episode, evenly spaced. When it is full, every second frame is dropped.

    The first frame is always kept. The selection depends on past frames only.
    """

    capacity: int  # maximum number of frames, at least 1
    frames: tuple[MultiViewFrame, ...] = ()
    stride: int = 1  # frames `0, stride, 2 stride, ...` are kept
    length: int = 0  # number of frames appended so far

    def append(self, frame: MultiViewFrame) -> FrameHistory:
        """Return the history with one more frame."""
        extended = replace(self, length=self.length + 1)
        if self.length % self.stride or (self.capacity == 1 and self.frames):
            return extended
        frames, stride = (*self.frames, frame), self.stride
        while len(frames) > self.capacity:
            frames, stride = frames[::2], 2 * stride
        return replace(extended, frames=frames, stride=stride)

    def sample_evenly(
        self, current: MultiViewFrame, max_frames: int, *, truncate: bool = False, start: int = 0
    ) -> list[MultiViewFrame]:
        """Return up to `max_frames` frames, evenly spaced from the frame `start` to `current`, both included.

        `current` follows the last appended one. Target times are rounded, or truncated. For each the nearest stored
        frame, without repetitions. They are exact up to `capacity` appended frames.
        """
        last = self.length - min(start, self.length)
        frame_indices = np.append(np.arange(len(self.frames)) * self.stride, self.length)
        times = np.linspace(0, last, min(max_frames, last + 1))
        target_indices = (np.trunc(times) if truncate else times.round()) + self.length - last
        nearest = np.abs(frame_indices[None] - target_indices[:, None]).argmin(axis=1)
        return [(*self.frames, current)[i] for i in np.unique(nearest)]


def empty_history(num_frames: int, frame: MultiViewFrame) -> FrameHistory:
    """Return an empty history for frames like `frame`: of at least `num_frames`, and of as many as its size permits.

    One frame is the first frame alone.
    """
    capacity = num_frames if num_frames == 1 else max(num_frames, MAX_HISTORY_BYTES // frame.frames.nbytes)
    return FrameHistory(capacity=capacity)
