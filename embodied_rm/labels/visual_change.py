"""Progress inside a step grows with what changes in the pictures, not with time.

Source: ProcVLM (`evqa/tools/functions/progress.py`): a frame's change is 1.5 - similarity of its perceptual hash with
the frame before; a step's budget is clip(K * length / T, 0.75, 1.25); where the task is not getting done it stays flat.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.climb import Segment, climb, need_steps, segments
from embodied_rm.labels.steps import step_indices, step_orders, task_of
from embodied_rm.labels.targets import Targets, need_demonstration, watched
from embodied_rm.types import Array, BoolArray, Episode, Frames

SIDE = 8
"""Lowest frequencies of the cosine transform, in each direction, that make a hash."""
LUMA = (0.299, 0.587, 0.114)
"""Share of red, green and blue in what the eye takes for bright."""


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode. Raises `DataError` when there is no demonstration, or one has no annotated steps;
    an episode whose steps nobody annotated teaches nothing else."""
    need_demonstration(episodes, "visual_change")
    need_steps(episodes, "visual_change")
    orders = step_orders(episodes)
    return [_labelled(episode, orders.get(task_of(episode), ())) for episode in episodes]


def _labelled(episode: Episode, order: tuple[str, ...]) -> Targets:
    parts, known = segments(episode, order), np.full(len(episode), bool(episode.steps))
    progress = climb(parts, budgets(parts, len(order), len(episode)), changes(episode))
    return watched(episode, progress, step_indices(episode, order), known)


def budgets(parts: Sequence[Segment], count: int, length: int) -> npt.NDArray[np.float64]:
    """float64 [count + 1] from 0 to 1: where each of `count` steps begins. A step that the episode does not show counts
    as one of mean length."""
    frames = np.zeros(count)
    for part in parts:
        frames[part.step] += part.end - part.start
    weights = np.where(frames > 0, np.clip(count * frames / length, 0.75, 1.25), 1.0)
    return np.append(0, np.cumsum(weights) / weights.sum())


def changes(episode: Episode) -> Array:
    """float32 [T] in [0.5, 1.5]: how unlike the frame before each frame is, mean over the views; 1.5 at the first."""
    bits = [hashes(frames) for frames in episode.views.values()]
    alike = np.mean([(hashed[1:] == hashed[:-1]).mean(axis=1) for hashed in bits], axis=0)
    return np.append(1.5, 1.5 - alike).astype(np.float32)


def hashes(frames: Frames) -> BoolArray:
    """bool [T, 63]: which of the lowest frequencies of each picture [T, H, W, 3] exceed their median (perceptual hash).

    The mean brightness is left out: it would always exceed.
    """
    grey = frames.astype(np.float32) @ np.array(LUMA, np.float32)
    height, width = frames.shape[1:3]
    waves = (_cosines(height) @ grey @ _cosines(width).T).reshape(len(frames), -1)[:, 1:]
    return waves > np.median(waves, axis=1, keepdims=True)


def _cosines(size: int) -> Array:
    """float32 [SIDE, size]: the lowest rows of the cosine transform."""
    return np.cos(np.pi / size * np.outer(np.arange(SIDE), np.arange(size) + 0.5)).astype(np.float32)
