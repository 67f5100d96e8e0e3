"""Goal pictures for an evaluation: how the same task looked when it was done another time."""

from __future__ import annotations

from collections.abc import Sequence

from embodied_rm.labels.labelled import LabelledEpisode


def goal_rows(labels: Sequence[LabelledEpisode]) -> list[int | None]:
    """For each episode the next one, in turn, that ended in success at the same goal: never itself; None without one.

    The last frame of that episode is the goal picture.
    """
    done: dict[str, list[int]] = {}
    for row, episode in enumerate(labels):
        if episode.done[-1]:
            done.setdefault(episode.goal, []).append(row)
    return [_next(row, done.get(episode.goal, [])) for row, episode in enumerate(labels)]


def _next(row: int, known: Sequence[int]) -> int | None:
    others = [other for other in known if other != row]
    return min(others, key=lambda other: (other < row, other), default=None)
