"""Steps that nobody annotated: where the pictures begin to look different, and where the gripper opens or closes.

Source: Unsupervised Perceptual Rewards (Sermanet et al., arXiv 1612.06699): steps are the stretches of a demonstration
in which frozen features vary least, found here exactly, by dynamic programming; VLA-RL: key frames of the gripper.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.climb import Segment, climb
from embodied_rm.labels.steps import task_of
from embodied_rm.labels.targets import Targets, demonstrates, need_demonstration, outcome_only
from embodied_rm.types import Array, BoolArray, Episode

STUDIED = 5
"""Demonstrations of a task from which its number of steps is chosen."""
MOST = 8
"""Most steps that are looked for."""
EXPLAINED = 0.8
"""Share of the features' variance that the steps must explain."""
HELD = 3
"""Frames that a gripper must stay open or closed to count."""
CELLS = 8
"""Cells, in each direction, to which pictures are averaged to be compared."""


def label(episodes: Sequence[Episode], features: Sequence[Array] | None = None) -> list[Targets]:
    """The targets of every episode; of a failure only its outcome is known.

    `features`: float32 [T, D] of each episode, from any frozen encoder; default: its pictures, coarsely. The gripper is
    the last column of `action`, where one is recorded. Raises `DataError` without a demonstration.
    """
    need_demonstration(episodes, "discovered")
    seen = [coarse(episode) for episode in episodes] if features is None else features
    tasks: dict[str, list[int]] = {}
    for i, episode in enumerate(episodes):
        if demonstrates(episode):
            tasks.setdefault(task_of(episode), []).append(i)
    counts = {t: step_count([seen[i] for i in rows[:STUDIED]]) for t, rows in tasks.items()}
    return [
        _found(e, f, counts[task_of(e)])
        if demonstrates(e)
        else outcome_only(e, np.zeros(len(e), np.float32), np.zeros(len(e), bool))
        for e, f in zip(episodes, seen, strict=True)
    ]


def _found(episode: Episode, features: Array, count: int) -> Targets:
    keys = np.zeros(len(episode), bool) if episode.action is None else key_frames(episode.action[:, -1])
    edges = segment(features, max(count, int(keys.sum()) + 1), keys)
    steps = len(edges) - 1
    parts = [Segment(step=k, start=a, end=b, into=k + 1) for k, (a, b) in enumerate(pairwise(edges))]
    return outcome_only(episode, climb(parts, np.arange(steps + 1) / steps, np.ones(len(episode))))


def coarse(episode: Episode) -> Array:
    """float32 [T, D]: every view averaged to at most `CELLS` x `CELLS` cells."""
    return np.concatenate([_cells(frames) for frames in episode.views.values()], axis=1)


def _cells(frames: npt.NDArray[np.uint8]) -> Array:
    height, width = frames.shape[1:3]
    rows = np.unique(np.arange(CELLS) * height // CELLS)
    columns = np.unique(np.arange(CELLS) * width // CELLS)
    sums = np.add.reduceat(np.add.reduceat(frames, rows, axis=1, dtype=np.float32), columns, axis=2)
    areas = np.outer(np.diff([*rows, height]), np.diff([*columns, width]))
    return (sums / areas[..., None]).reshape(len(frames), -1).astype(np.float32)


def step_count(features: Sequence[Array]) -> int:
    """The fewest steps, up to `MOST`, that explain `EXPLAINED` of the variance, mean over demonstrations [T, D]."""
    explained = np.mean([_explained(one) for one in features], axis=0)
    return int(np.argmax(explained >= EXPLAINED)) + 1 if explained.max() >= EXPLAINED else MOST


def _explained(features: Array) -> npt.NDArray[np.float64]:
    """float64 [MOST]: share of the variance that the best 1, 2, ... segments explain; 1 where nothing varies."""
    least, _ = _least(_costs(features), MOST)
    ends = least[:, -1]
    ends = np.where(np.isfinite(ends), ends, 0.0)  # fewer frames than segments: each frame its own
    return 1 - ends / ends[0] if ends[0] > 1e-9 else np.ones(MOST)


def segment(features: Array, count: int, forced: BoolArray) -> list[int]:
    """Edges [0, ..., T] of the `count` segments (at most T) with the least sum of squared distances to their means.

    A segment begins wherever `forced` [T] is true; there must be fewer such frames behind the first than `count`.
    """
    cost, length = _costs(features), len(features)
    inside = np.append(0, np.cumsum(forced))
    crossing = inside[None, 1:] - inside[1:, None] > 0  # [i, j - 1]: a forced edge lies between i and j
    cost[:-1, 1:][crossing] = np.inf
    least, before = _least(cost, min(count, length))
    edges = [length]
    for row in before[: len(least)][::-1]:
        edges.append(int(row[edges[-1]]))
    return edges[::-1]


def _costs(features: Array) -> npt.NDArray[np.float64]:
    """float64 [T + 1, T + 1]: squared distances of frames i..j-1 to their mean, summed; infinite where j <= i."""
    centred = features.astype(np.float64) - features.mean(axis=0)
    sums = np.concatenate([np.zeros((1, centred.shape[1])), np.cumsum(centred, axis=0)])
    squares = np.append(0, np.cumsum((centred**2).sum(axis=1)))
    dots = sums @ sums.T
    norm = np.diag(dots)
    frames = np.arange(len(sums))[None] - np.arange(len(sums))[:, None]
    spread = squares[None] - squares[:, None] - (norm[None] + norm[:, None] - 2 * dots) / np.maximum(frames, 1)
    return np.where(frames > 0, np.maximum(spread, 0), np.inf)


def _least(cost: npt.NDArray[np.float64], most: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """(least cost of the first j frames in k + 1 segments, where the last of these begins), both [most, T + 1]."""
    least, before = [cost[0]], [np.zeros(len(cost), np.int64)]
    for _ in range(most - 1):
        total = least[-1][:, None] + cost
        before.append(total.argmin(axis=0))
        least.append(total.min(axis=0))
    return np.stack(least), np.stack(before)


def key_frames(grip: Array) -> BoolArray:
    """bool [T]: where the gripper, whose command or opening `grip` [T] is, begins to be open or closed.

    It changes over when it passes three quarters of the way, and only if it stays for `HELD` frames (or to the end).
    """
    low, high = grip.min(), grip.max()
    if high - low < 1e-6:
        return np.zeros(len(grip), bool)
    place = (grip - low) / (high - low)
    firm = np.flatnonzero((place < 0.25) | (place > 0.75))
    latest = firm[np.maximum(np.searchsorted(firm, np.arange(len(grip)), side="right") - 1, 0)]
    closed = place[latest] > 0.5
    edges = np.flatnonzero(np.diff(closed)) + 1
    runs = np.diff([*edges, len(grip)])
    # A short visit is two edges: both go, and what lies around it is one.
    kept = np.zeros(len(grip), bool)
    state = closed[0]
    for edge, run in zip(edges, runs, strict=True):
        if closed[edge] != state and (run >= HELD or edge + run == len(grip)):
            kept[edge], state = True, closed[edge]
    return kept
