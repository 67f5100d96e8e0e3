"""Goal images of an evaluation, from other episodes or from files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.labeled_episode import LabeledEpisode, label_ground_truth
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.models.goal_images import read_goal_images
from embodied_rm.types import Episode


def assign_goal_rows(labels: Sequence[LabeledEpisode]) -> list[int | None]:
    """Return for each episode the index of the episode whose last frame is its goal image.

    It is the next successful episode with the same goal, cyclically, and never the episode itself. None: there is none.
    """
    success_rows_by_goal: dict[str, list[int]] = {}
    for row, episode in enumerate(labels):
        if episode.success[-1]:
            success_rows_by_goal.setdefault(episode.goal, []).append(row)
    goal_rows: list[int | None] = []
    for row, episode in enumerate(labels):
        others = [other for other in success_rows_by_goal.get(episode.goal, []) if other != row]
        goal_rows.append(next((other for other in others if other > row), others[0] if others else None))
    return goal_rows


def find_goal_rows(episodes: Sequence[Episode], data_label: str) -> dict[int, int]:
    """Return episode -> the episode whose last frame is its goal image; raise `DataError` if no episode has one."""
    goal_rows = assign_goal_rows(label_ground_truth(episodes))
    goal_by_row = {row: goal for row, goal in enumerate(goal_rows) if goal is not None}
    if not goal_by_row:
        raise DataError(
            f"{data_label}: goal images from other episodes need two episodes with the same goal, one of them a success"
        )
    return goal_by_row


def read_common_goal(
    image_paths: Sequence[Path], views: Sequence[str], episodes: Sequence[Episode], data_label: str
) -> Episode:
    """Read the goal images of all episodes; raise `UserError` if these have several goals."""
    goals = sorted({goal_of(episode) for episode in episodes})
    if len(goals) > 1:
        raise UserError(f"goal_images=[...] shows one goal, but {data_label} has {len(goals)}: {', '.join(goals)}")
    return read_goal_episode(image_paths, views)


def read_goal_episode(paths: Sequence[Path], views: Sequence[str]) -> Episode:
    """Read image files, each named after its view (front.png), as an episode of one frame."""
    goal = read_goal_images(paths, views)
    frames = {name: np.asarray(goal.frames)[:, index] for index, name in enumerate(goal.names)}
    return Episode(name="goal", views=frames, instruction="", fps=1.0)
