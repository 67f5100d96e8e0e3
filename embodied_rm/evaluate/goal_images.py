"""Which goal images an evaluation shows the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.goal_images import read_goal_episode
from embodied_rm.errors import DataError, UserError
from embodied_rm.evaluate import assign_goal_rows
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.types import Episode


def find_goal_rows(episodes: Sequence[Episode], data_label: str) -> dict[int, int]:
    """Episode -> the other one whose end is its goal image; episodes without one are not in it.

    Raises `DataError`, naming `what` they are, when there is none at all.
    """
    goal_by_row = {row: goal for row, goal in enumerate(assign_goal_rows(label(episodes))) if goal is not None}
    if not goal_by_row:
        raise DataError(
            f"{data_label}: no two episodes with one goal of which one succeeds; goals of other episodes need them"
        )
    return goal_by_row


def read_common_goal(
    image_paths: Sequence[Path], views: Sequence[str], episodes: Sequence[Episode], data_label: str
) -> Episode:
    """The images as the goal of all the episodes. Raises `UserError` when those have several goals."""
    goals = sorted({goal_of(episode) for episode in episodes})
    if len(goals) > 1:
        raise UserError(f"goal_images=[...] shows one goal, {data_label} has {len(goals)}: {', '.join(goals)}")
    return read_goal_episode(image_paths, views)
