"""Frames that show what the video showed before: there, the curve goes back to its value of that time.

Recurrent nets recognize how a task begins, and then call every change forward, a way back too: they were trained on
videos of successes. The past of the video itself tells undoing from doing, on every robot, without any training. Pure
functions; B videos, K remembered frames of D numbers each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embodied_rm.models.zero_shot.progress_filter import DIRECTION_GAIN, FilterState

MEMORY_FRAMES = 128  # last frames of a video that are remembered
MIN_AGE = 2  # frames back, from which on a frame is an earlier one and not just the last one
SAME_DISTANCE = 0.7  # mean distances of two consecutive frames, up to which two frames are the same
SHARPNESS = 4  # power of the distance in the closeness
MIN_STEP = 1e-6  # mean distance of two consecutive frames of a still video


class PastFrames(NamedTuple):
    """What B videos remember: a ring of their last K frames, with the curve at each."""

    images: Tensor  # what the nets see of the frames, float [B, K, D]
    logits: Tensor  # float [B, K]
    climbs: Tensor  # float [B, K]
    num_frames: Tensor  # so far, int64 [B]
    path: Tensor  # sum of the distances of consecutive frames, float [B]


class Revisit(NamedTuple):
    """The nearest earlier frame of each of B frames."""

    closeness: Tensor  # 1: the same image; 0: none is alike. float [B]
    curve: FilterState  # at that frame


def no_past(shape: tuple[int, ...], width: int, size: int = MEMORY_FRAMES) -> PastFrames:
    """Return the memory of videos before their first frames.

    Args:
        shape: Leading dimensions.
        width: Length D of an image.
        size: Number K of frames.
    """
    per_frame = torch.zeros(*shape, size)
    return PastFrames(
        images=torch.zeros(*shape, size, width),
        logits=per_frame,
        climbs=per_frame,
        num_frames=torch.zeros(shape, dtype=torch.int64),
        path=torch.zeros(shape),
    )


def find_revisit(past: PastFrames, image: Tensor) -> tuple[Revisit, Tensor]:
    """Find the nearest frame that is at least `MIN_AGE` frames back.

    Args:
        past: The memory of the frames before.
        image: What the nets see of one further frame of each video, float [B, D].

    Returns:
        That frame, and the length of the path with the new frame.
    """
    size = past.images.shape[1]
    rows = torch.arange(len(image))
    distances = (past.images - image[:, None]).norm(dim=2)
    step = torch.where(past.num_frames > 0, distances[rows, (past.num_frames - 1) % size], 0.0)
    path = past.path + step
    masked = distances.masked_fill(slot_ages(past.num_frames, size) < MIN_AGE, torch.inf)
    distance, slot = masked.min(dim=1)
    mean_step = (path / past.num_frames.clamp_min(1)).clamp_min(MIN_STEP)
    closeness = torch.exp(-((distance / mean_step / SAME_DISTANCE) ** SHARPNESS))
    return Revisit(closeness, FilterState(past.logits[rows, slot], past.climbs[rows, slot])), path


def slot_ages(num_frames: Tensor, size: int) -> Tensor:
    """Return how many frames before the next one each slot of a ring was written, int64 [B, size]; -1: not yet.

    Slot s holds the last frame j < num_frames with j % size == s.
    """
    count = num_frames[:, None]
    ages = (count - 1 - torch.arange(size)) % size + 1
    return torch.where(ages <= count, ages, -1)


def blend_revisit(advanced: FilterState, revisit: Revisit) -> FilterState:
    """Return the curve [B] after a frame: as far as it is an earlier frame, the curve at that one, else `advanced`."""
    return FilterState(
        *(torch.lerp(own, then, revisit.closeness) for own, then in zip(advanced, revisit.curve, strict=True))
    )


def revisit_direction(before: FilterState, direction: Tensor, revisit: Revisit) -> Tensor:
    """Return how surely the last change was forward, [B] in [-1, 1]: by the nets, or by the earlier frame's curve."""
    known = ((revisit.curve.logit - before.logit) / DIRECTION_GAIN).clamp(-1, 1)
    return torch.lerp(direction, known, revisit.closeness)


def remember(past: PastFrames, image: Tensor, curve: FilterState, path: Tensor) -> PastFrames:
    """Return the memory with one further frame of each video, float [B, D], and the curve there."""
    at = torch.arange(len(image)), past.num_frames % past.images.shape[1]
    return PastFrames(
        images=past.images.index_put(at, image),
        logits=past.logits.index_put(at, curve.logit),
        climbs=past.climbs.index_put(at, curve.climb),
        num_frames=past.num_frames + 1,
        path=path,
    )
