"""Order and index of subtasks."""

from __future__ import annotations

import numpy as np

from embodied_rm.labels.subtasks import UNLABELED_SUBTASK, subtask_indices, subtask_orders
from embodied_rm.types import Episode, Subtask


def episode(runs: list[tuple[str, int, int]], *, length: int = 10, success: bool | None = True, task: str = "t"):
    return Episode(
        name="e",
        views={"front": np.zeros((length, 8, 8, 3), np.uint8)},
        instruction="do it",
        fps=10.0,
        subtasks=tuple(Subtask(name=name, start=start, end=end) for name, start, end in runs),
        success=success,
        metadata={"task": task} if task else {},
    )


def test_order_is_that_of_the_success_with_most_subtasks():
    partial = episode([("reach", 0, 4), ("lift", 4, 10)])
    full = episode([("reach", 0, 3), ("grasp", 3, 4), ("lift", 4, 10)])
    failed = episode([("lift", 0, 1), ("grasp", 1, 2), ("reach", 2, 3), ("fall", 3, 4)], success=False)
    assert subtask_orders([failed, partial, full]) == {"t": ("reach", "grasp", "lift")}
    assert subtask_orders([failed]) == {"t": ("lift", "grasp", "reach", "fall")}


def test_tasks_are_identified_by_name_or_instruction():
    orders = subtask_orders([episode([("a", 0, 1)]), episode([("b", 0, 1)], task="u"), episode([("c", 0, 1)], task="")])
    assert orders == {"t": ("a",), "u": ("b",), "do it": ("c",)}


def test_repeated_subtask_has_the_same_index():
    repeated = episode([("reach", 0, 4), ("lift", 4, 6), ("reach", 6, 10)], success=False)
    assert subtask_indices(repeated, ("reach", "grasp", "lift")).tolist() == [0] * 4 + [2] * 2 + [0] * 4


def test_gaps_have_the_index_of_the_next_subtask():
    gaps = episode([("a", 1, 3), ("b", 5, 7)])
    assert subtask_indices(gaps, ("a", "b")).tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]


def test_unknown_subtasks_are_unlabeled():
    assert (subtask_indices(episode([]), ("a",)) == UNLABELED_SUBTASK).all()
    assert (subtask_indices(episode([("x", 0, 10)]), ("a",)) == UNLABELED_SUBTASK).all()
