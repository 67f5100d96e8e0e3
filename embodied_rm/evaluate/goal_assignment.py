"""Assign goal images for an evaluation: the last frame of another success at the same goal."""

from __future__ import annotations

from collections.abc import Sequence

from embodied_rm.labels.labeled_episode import LabeledEpisode


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
