"""Goal images of an evaluation, from other episodes or from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.goal_images import read_goal_episode
from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.labeled_episode import LabeledEpisode, label
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.types import Episode


def assign_goal_rows(labels: Sequence[LabeledEpisode]) -> list[int | None]:
    """Return for each episode the index of the episode whose last frame is its goal image.

    It is the next successful episode with the same goal, cyclically, and never the episode itself. None: there is none.
    """
    success_rows_by_goal: dict[str, list[int]] = {}
    for row, episode in enumerate(labels):
        if episode.success[-1]:
            success_rows_by_goal.setdefault(episode.goal, []).append(row)
    return [_next_success_row(row, success_rows_by_goal.get(episode.goal, [])) for row, episode in enumerate(labels)]


def _next_success_row(row: int, success_rows: Sequence[int]) -> int | None:
    others = [other for other in success_rows if other != row]
    return min(others, key=lambda other: (other < row, other), default=None)


def find_goal_rows(episodes: Sequence[Episode], data_label: str) -> dict[int, int]:
    """Return episode -> the episode whose last frame is its goal image; episodes without one are left out.

    Raises:
        DataError: If no episode has a goal image; the message starts with `data_label`.
    """
    goal_by_row = {row: goal for row, goal in enumerate(assign_goal_rows(label(episodes))) if goal is not None}
    if not goal_by_row:
        raise DataError(
            f"{data_label}: goal images from other episodes need two episodes with the same goal, one of them a success"
        )
    return goal_by_row


def read_common_goal(
    image_paths: Sequence[Path], views: Sequence[str], episodes: Sequence[Episode], data_label: str
) -> Episode:
    """Read the goal images of all episodes.

    Raises:
        UserError: If the episodes have several goals.
    """
    goals = sorted({goal_of(episode) for episode in episodes})
    if len(goals) > 1:
        raise UserError(f"goal_images=[...] shows one goal, but {data_label} has {len(goals)}: {', '.join(goals)}")
    return read_goal_episode(image_paths, views)
