"""Steps that nobody annotated: where the pictures begin to look different, and where the gripper opens or closes.

Source: Unsupervised Perceptual Rewards (Sermanet et al., arXiv 1612.06699): steps are the stretches of a demonstration
in which frozen features vary least, found here exactly, by dynamic programming; VLA-RL: key frames of the gripper.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.change_points import segment, step_count
from embodied_rm.labels.climb import Segment, climb
from embodied_rm.labels.steps import task_of
from embodied_rm.labels.targets import Targets, demonstrates, need_demonstration, need_outcome, outcome_only
from embodied_rm.types import Array, BoolArray, Episode

STUDIED = 5
"""Demonstrations of a task from which its number of steps is chosen."""
HELD = 3
"""Frames that a gripper must stay open or closed to count."""
CELLS = 8
"""Cells, in each direction, to which pictures are averaged to be compared."""


def label(episodes: Sequence[Episode], features: Sequence[Array] | None = None) -> list[Targets]:
    """The targets of every episode; of a failure only its outcome is known.

    `features`: float32 [T, D] of each episode, from any frozen encoder; default: its pictures, coarsely. The gripper is
    the last column of `action`, where one is recorded. Raises `DataError` without outcomes or without a
    demonstration.
    """
    need_outcome(episodes, "discovered")
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
    edges = found_edges(episode, features, count)
    steps = len(edges) - 1
    parts = [Segment(step=k, start=a, end=b, into=k + 1) for k, (a, b) in enumerate(pairwise(edges))]
    return outcome_only(episode, climb(parts, np.arange(steps + 1) / steps, np.ones(len(episode))))


def found_edges(episode: Episode, features: Array, count: int) -> list[int]:
    """Where the steps of an episode begin, and its end: [0, ..., T], `count` of them or as many as the gripper says."""
    keys = np.zeros(len(episode), bool) if episode.action is None else key_frames(episode.action[:, -1])
    return segment(features, max(count, int(keys.sum()) + 1), keys)


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
