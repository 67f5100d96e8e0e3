"""Steps that nobody annotated: where the images begin to look different, and where the gripper opens or closes.

Source: Unsupervised Perceptual Rewards (Sermanet et al., arXiv 1612.06699): steps are the stretches of a demonstration
in which frozen features vary least, found here exactly, by dynamic programming; VLA-RL: key frames of the gripper.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.change_points import choose_segment_count, segment_sequence
from embodied_rm.labels.piecewise_progress import SubtaskSpan, piecewise_progress
from embodied_rm.labels.subtasks import task_of
from embodied_rm.labels.targets import (
    Targets,
    is_demonstration,
    require_demonstration,
    require_outcome,
    targets_with_final_outcome,
)
from embodied_rm.types import Array, BoolArray, Episode

MAX_DEMOS_FOR_COUNT = 5
"""Demonstrations of a task from which its number of steps is chosen."""
MIN_GRIP_FRAMES = 3
"""Frames that a gripper must stay open or closed to count."""
GRID_SIZE = 8
"""Cells, in each direction, to which images are averaged to be compared."""


def label(episodes: Sequence[Episode], features: Sequence[Array] | None = None) -> list[Targets]:
    """The targets of every episode; of a failure only its outcome is known.

    `features`: float32 [T, D] of each episode, from any frozen encoder; default: its images, coarsely. The gripper is
    the last column of `action`, where one is recorded. Raises `DataError` without outcomes or without a
    demonstration.
    """
    require_outcome(episodes, "discovered")
    require_demonstration(episodes, "discovered")
    episode_features = [coarse_features(episode) for episode in episodes] if features is None else features
    demos_by_task: dict[str, list[int]] = {}
    for i, episode in enumerate(episodes):
        if is_demonstration(episode):
            demos_by_task.setdefault(task_of(episode), []).append(i)
    counts = {
        t: choose_segment_count([episode_features[i] for i in indices[:MAX_DEMOS_FOR_COUNT]])
        for t, indices in demos_by_task.items()
    }
    return [
        _label_demonstration(e, f, counts[task_of(e)])
        if is_demonstration(e)
        else targets_with_final_outcome(e, np.zeros(len(e), np.float32), np.zeros(len(e), bool))
        for e, f in zip(episodes, episode_features, strict=True)
    ]


def _label_demonstration(episode: Episode, features: Array, count: int) -> Targets:
    edges = subtask_edges(episode, features, count)
    num_subtasks = len(edges) - 1
    spans = [SubtaskSpan(subtask=k, start=a, end=b, next_subtask=k + 1) for k, (a, b) in enumerate(pairwise(edges))]
    return targets_with_final_outcome(
        episode, piecewise_progress(spans, np.arange(num_subtasks + 1) / num_subtasks, np.ones(len(episode)))
    )


def subtask_edges(episode: Episode, features: Array, count: int) -> list[int]:
    """Where the steps of an episode begin, and its end: [0, ..., T], `count` of them or as many as the gripper says."""
    key_frame_mask = (
        np.zeros(len(episode), bool) if episode.action is None else gripper_key_frames(episode.action[:, -1])
    )
    return segment_sequence(features, max(count, int(key_frame_mask.sum()) + 1), key_frame_mask)


def coarse_features(episode: Episode) -> Array:
    """float32 [T, D]: every view averaged to at most `CELLS` x `CELLS` cells."""
    return np.concatenate([_grid_means(frames) for frames in episode.views.values()], axis=1)


def _grid_means(frames: npt.NDArray[np.uint8]) -> Array:
    height, width = frames.shape[1:3]
    rows = np.unique(np.arange(GRID_SIZE) * height // GRID_SIZE)
    columns = np.unique(np.arange(GRID_SIZE) * width // GRID_SIZE)
    sums = np.add.reduceat(np.add.reduceat(frames, rows, axis=1, dtype=np.float32), columns, axis=2)
    areas = np.outer(np.diff([*rows, height]), np.diff([*columns, width]))
    return (sums / areas[..., None]).reshape(len(frames), -1).astype(np.float32)


def gripper_key_frames(gripper: Array) -> BoolArray:
    """bool [T]: where the gripper, whose command or opening `grip` [T] is, begins to be open or closed.

    It changes over when it passes three quarters of the way, and only if it stays for `HELD` frames (or to the end).
    """
    low, high = gripper.min(), gripper.max()
    if high - low < 1e-6:
        return np.zeros(len(gripper), bool)
    opening = (gripper - low) / (high - low)
    decided = np.flatnonzero((opening < 0.25) | (opening > 0.75))
    latest = decided[np.maximum(np.searchsorted(decided, np.arange(len(gripper)), side="right") - 1, 0)]
    closed = opening[latest] > 0.5
    edges = np.flatnonzero(np.diff(closed)) + 1
    run_lengths = np.diff([*edges, len(gripper)])
    # A short visit is two edges: both go, and what lies around it is one.
    mask = np.zeros(len(gripper), bool)
    current = closed[0]
    for edge, run_length in zip(edges, run_lengths, strict=True):
        if closed[edge] != current and (run_length >= MIN_GRIP_FRAMES or edge + run_length == len(gripper)):
            mask[edge], current = True, closed[edge]
    return mask
