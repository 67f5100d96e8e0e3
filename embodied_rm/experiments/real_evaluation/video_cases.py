"""Videos made from a recording: whole, reversed, cut, undone, standing still, black."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from embodied_rm.metrics import voc
from embodied_rm.types import Array, Frames

WHOLE, REVERSED, HALF, UNDONE, RETRIED = "whole", "reversed", "half", "undone", "second attempt"
VideoCase = Callable[[Frames], Frames]  # frames [T, V, H, W, 3] -> frames of the case


def reverse(frames: Frames) -> Frames:
    """Return the video backward."""
    return np.ascontiguousarray(frames[::-1])


def first_half(frames: Frames) -> Frames:
    """Return the video up to its middle."""
    return frames[: max(1, len(frames) // 2)]


def undo(frames: Frames) -> Frames:
    """Return the video, and then the same backward: what was done is undone."""
    return np.concatenate([frames, frames[::-1]])


def try_again(frames: Frames) -> Frames:
    """Return the first half of the video, the same backward, and the whole video: a second attempt."""
    half = first_half(frames)
    return np.concatenate([half, half[::-1], frames])


def order_of_last(progress: Array, num_frames: int) -> float:
    """Return the rank correlation of progress [T] with time over the last frames; 0 for a constant."""
    return float(np.nan_to_num(voc(progress[-num_frames:])))


def freeze_start(frames: Frames) -> Frames:
    """Return the first frame, for the whole duration."""
    return np.repeat(frames[:1], len(frames), axis=0)


def freeze_middle(frames: Frames) -> Frames:
    """Return the frame in the middle, for the whole duration."""
    middle = len(frames) // 2
    return np.repeat(frames[middle : middle + 1], len(frames), axis=0)


def blacken(frames: Frames) -> Frames:
    """Return black frames."""
    return np.zeros_like(frames)


NEVER_DONE: Mapping[str, VideoCase] = {
    "frozen start": freeze_start,
    "frozen middle": freeze_middle,
    REVERSED: reverse,
    "black": blacken,
}
"""Cases of a success that must not be predicted done."""
