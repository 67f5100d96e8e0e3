"""What a judge is shown again of an episode's past: its first frame, the one last scored, and some between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from embodied_rm.types import BoolArray, Frames


class Picture(NamedTuple):
    """What the cameras of one environment show at one moment."""

    frames: Frames
    """uint8 [V, H, W, 3]."""
    there: BoolArray
    """bool [V]: the views that are present and show anything."""

    def of(self, names: Sequence[str]) -> dict[str, Frames]:
        """View name -> uint8 [H, W, 3], of the views that are there."""
        return {name: frame for name, frame, seen in zip(names, self.frames, self.there, strict=True) if seen}


@dataclass(frozen=True, kw_only=True)
class Film:
    """Frames of an episode, evenly over its time and never more than `room`: when they are, every second one goes.

    The first always stays. Which ones are kept depends on the past alone.
    """

    room: int
    """At least 1."""
    frames: tuple[Picture, ...] = ()
    stride: int = 1
    """Frames `0, stride, 2 stride, ...` are kept."""
    length: int = 0
    """Frames that were shown."""

    def added(self, picture: Picture) -> Film:
        """The film with one frame more."""
        longer = replace(self, length=self.length + 1)
        if self.length % self.stride or (self.room == 1 and self.frames):
            return longer
        kept, stride = (*self.frames, picture), self.stride
        while len(kept) > self.room:
            kept, stride = kept[::2], 2 * stride
        return replace(longer, frames=kept, stride=stride)

    def evenly(self, now: Picture, most: int) -> list[Picture]:
        """Up to `most` frames, evenly from the first to `now`, which comes after the last one added; both are in it.

        Each is the nearest one that is kept.
        """
        count = min(most, self.length + 1)
        kept = np.append(np.arange(len(self.frames)) * self.stride, self.length)
        wanted = np.linspace(0, self.length, count).round()
        nearest = np.abs(kept[None] - wanted[:, None]).argmin(axis=1)
        return [(*self.frames, now)[i] for i in np.unique(nearest)]
