"""Subtasks from change points: where frozen features change, and where the gripper opens or closes.

Sources: Unsupervised Perceptual Rewards (Sermanet et al., arXiv 1612.06699) segments a demonstration so that features
vary least inside the segments, found here exactly, by dynamic programming; VLA-RL uses key frames of the gripper.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.piecewise_progress import SubtaskSpan, piecewise_progress
from embodied_rm.labels.subtasks import task_of
from embodied_rm.labels.targets import (
    Targets,
    is_demonstration,
    outcome_targets,
    require_demonstration,
    require_outcome,
    targets_with_final_outcome,
)
from embodied_rm.types import Array, BoolArray, Episode

MAX_DEMOS_FOR_COUNT = 5  # number of demonstrations per task that determine its number of subtasks
MIN_GRIP_FRAMES = 3  # frames that the gripper must stay open or closed to count as a change
GRID_SIZE = 8  # rows and columns of the grid to which images are averaged
MAX_SEGMENTS = 8  # largest number of segments per demonstration
MIN_EXPLAINED_VARIANCE = 0.8  # fraction of the feature variance that the segments must explain


def label(episodes: Sequence[Episode], features: Sequence[Array] | None = None) -> list[Targets]:
    """Return the targets per episode, from encoder features float32 [T, D] (None: downsampled pixels).

    Failures get their outcome only. The last column of a recorded `action` is the gripper. `DataError` if no episode
    has an outcome or none is a demonstration.
    """
    require_outcome(episodes, "change_points")
    require_demonstration(episodes, "change_points")
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
        _label_demonstration(e, f, counts[task_of(e)]) if is_demonstration(e) else outcome_targets(e)
        for e, f in zip(episodes, episode_features, strict=True)
    ]


def _label_demonstration(episode: Episode, features: Array, count: int) -> Targets:
    edges = subtask_edges(episode, features, count)
    num_subtasks = len(edges) - 1
    spans = [SubtaskSpan(subtask=k, start=a, end=b, next_subtask=k + 1) for k, (a, b) in enumerate(pairwise(edges))]
    progress = piecewise_progress(spans, np.arange(num_subtasks + 1) / num_subtasks, np.ones(len(episode)))
    return targets_with_final_outcome(episode, progress)


def subtask_edges(episode: Episode, features: Array, count: int) -> list[int]:
    """Return subtask edges [0, ..., T] of an episode: `count` subtasks, or more if the gripper has more key frames."""
    no_action = np.zeros(len(episode), bool)
    key_frame_mask = no_action if episode.action is None else gripper_key_frames(episode.action[:, -1])
    return segment_sequence(features, max(count, int(key_frame_mask.sum()) + 1), key_frame_mask)


def coarse_features(episode: Episode) -> Array:
    """Return every view averaged to at most `GRID_SIZE` x `GRID_SIZE` cells, float32 [T, D]."""
    return np.concatenate([_grid_means(frames) for frames in episode.views.values()], axis=1)


def _grid_means(frames: npt.NDArray[np.uint8]) -> Array:
    height, width = frames.shape[1:3]
    rows = np.unique(np.arange(GRID_SIZE) * height // GRID_SIZE)
    columns = np.unique(np.arange(GRID_SIZE) * width // GRID_SIZE)
    sums = np.add.reduceat(np.add.reduceat(frames, rows, axis=1, dtype=np.float32), columns, axis=2)
    areas = np.outer(np.diff([*rows, height]), np.diff([*columns, width]))
    return (sums / areas[..., None]).reshape(len(frames), -1).astype(np.float32)


def gripper_key_frames(gripper: Array) -> BoolArray:
    """Return the frames at which the gripper [T] (command or opening, any unit) begins to be open or closed, bool [T].

    The state changes at three quarters of the range, if it lasts `MIN_GRIP_FRAMES` frames or to the end.
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
    # A short change is two edges. Both are dropped, which joins the runs around it.
    mask = np.zeros(len(gripper), bool)
    current = closed[0]
    for edge, run_length in zip(edges, run_lengths, strict=True):
        if closed[edge] != current and (run_length >= MIN_GRIP_FRAMES or edge + run_length == len(gripper)):
            mask[edge], current = True, closed[edge]
    return mask


def choose_segment_count(features: Sequence[Array]) -> int:
    """Return the fewest segments that explain `MIN_EXPLAINED_VARIANCE` of features [T, D] on average."""
    explained_variance = np.mean([_explained_variance(demonstration) for demonstration in features], axis=0)
    sufficient = explained_variance >= MIN_EXPLAINED_VARIANCE
    return int(np.argmax(sufficient)) + 1 if sufficient.any() else MAX_SEGMENTS


def _explained_variance(features: Array) -> npt.NDArray[np.float64]:
    """Return the variance fraction explained by 1, 2, ... segments, float64 [MAX_SEGMENTS]; 1 for constants."""
    min_costs, _ = _min_costs(_segment_costs(features), MAX_SEGMENTS)
    totals = min_costs[:, -1]
    totals = np.where(np.isfinite(totals), totals, 0.0)  # fewer frames than segments: one segment per frame
    return 1 - totals / totals[0] if totals[0] > 1e-9 else np.ones(MAX_SEGMENTS)


def segment_sequence(features: Array, count: int, forced_starts: BoolArray) -> list[int]:
    """Return the edges [0, ..., T] of at most `count` segments of features [T, D] with the least variance inside.

    `forced_starts`, bool [T]: fewer than `count` frames after the first that must start a segment.
    """
    cost, length = _segment_costs(features), len(features)
    num_forced = np.append(0, np.cumsum(forced_starts))
    crosses_forced = num_forced[None, 1:] - num_forced[1:, None] > 0  # [i, j - 1]: a forced edge lies between i and j
    cost[:-1, 1:][crosses_forced] = np.inf
    min_costs, last_starts = _min_costs(cost, min(count, length))
    edges = [length]
    for last_start in last_starts[: len(min_costs)][::-1]:
        edges.append(int(last_start[edges[-1]]))
    return edges[::-1]


def _segment_costs(features: Array) -> npt.NDArray[np.float64]:
    """Return the summed squared distances of frames i..j-1 to their mean, float64 [T + 1, T + 1]; inf for j <= i."""
    centered = features.astype(np.float64) - features.mean(axis=0)
    sums = np.concatenate([np.zeros((1, centered.shape[1])), np.cumsum(centered, axis=0)])
    squares = np.append(0, np.cumsum((centered**2).sum(axis=1)))
    gram = sums @ sums.T
    square_norms = np.diag(gram)
    lengths = np.arange(len(sums))[None] - np.arange(len(sums))[:, None]
    squared_sums = square_norms[None] + square_norms[:, None] - 2 * gram
    within_squares = squares[None] - squares[:, None] - squared_sums / np.maximum(lengths, 1)
    return np.where(lengths > 0, np.maximum(within_squares, 0), np.inf)


def _min_costs(
    cost: npt.NDArray[np.float64], max_segments: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return (least cost of the first j frames in k + 1 segments, start of the last), both [max_segments, T + 1]."""
    min_costs, last_starts = [cost[0]], [np.zeros(len(cost), np.int64)]
    for _ in range(max_segments - 1):
        total = min_costs[-1][:, None] + cost
        last_starts.append(total.argmin(axis=0))
        min_costs.append(total.min(axis=0))
    return np.stack(min_costs), np.stack(last_starts)
