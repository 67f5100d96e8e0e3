"""Goal images for an evaluation: how the same task looked when it was done another time."""

from __future__ import annotations

from collections.abc import Sequence

from embodied_rm.labels.labeled_episode import LabeledEpisode


def assign_goal_rows(labels: Sequence[LabeledEpisode]) -> list[int | None]:
    """For each episode the next one, in turn, that ended in success at the same goal: never itself; None without one.

    The last frame of that episode is the goal image.
    """
    success_rows_by_goal: dict[str, list[int]] = {}
    for row, episode in enumerate(labels):
        if episode.success[-1]:
            success_rows_by_goal.setdefault(episode.goal, []).append(row)
    return [_next_success_row(row, success_rows_by_goal.get(episode.goal, [])) for row, episode in enumerate(labels)]


def _next_success_row(row: int, success_rows: Sequence[int]) -> int | None:
    others = [other for other in success_rows if other != row]
    return min(others, key=lambda other: (other < row, other), default=None)
