"""What a judge is shown again of an episode's past: its first frame, the one last scored, and some between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from embodied_rm.types import BoolArray, Frames


class MultiViewFrame(NamedTuple):
    """What the cameras of one environment show at one moment."""

    frames: Frames
    """uint8 [V, H, W, 3]."""
    visible: BoolArray
    """bool [V]: the views that are present and show anything."""

    def by_view(self, names: Sequence[str]) -> dict[str, Frames]:
        """View name -> uint8 [H, W, 3], of the views that are there."""
        return {name: frame for name, frame, visible in zip(names, self.frames, self.visible, strict=True) if visible}


@dataclass(frozen=True, kw_only=True)
class FrameHistory:
    """Frames of an episode, evenly over its time and never more than `room`: when they are, every second one goes.

    The first always stays. Which ones are kept depends on the past alone.
    """

    capacity: int
    """At least 1."""
    frames: tuple[MultiViewFrame, ...] = ()
    stride: int = 1
    """Frames `0, stride, 2 stride, ...` are kept."""
    length: int = 0
    """Frames that were shown."""

    def append(self, frame: MultiViewFrame) -> FrameHistory:
        """The video with one frame more."""
        extended = replace(self, length=self.length + 1)
        if self.length % self.stride or (self.capacity == 1 and self.frames):
            return extended
        frames, stride = (*self.frames, frame), self.stride
        while len(frames) > self.capacity:
            frames, stride = frames[::2], 2 * stride
        return replace(extended, frames=frames, stride=stride)

    def sample_evenly(self, current: MultiViewFrame, max_frames: int) -> list[MultiViewFrame]:
        """Up to `most` frames, evenly from the first to `now`, which comes after the last one added; both are in it.

        Each is the nearest one that is kept.
        """
        count = min(max_frames, self.length + 1)
        frame_indices = np.append(np.arange(len(self.frames)) * self.stride, self.length)
        target_indices = np.linspace(0, self.length, count).round()
        nearest = np.abs(frame_indices[None] - target_indices[:, None]).argmin(axis=1)
        return [(*self.frames, current)[i] for i in np.unique(nearest)]
