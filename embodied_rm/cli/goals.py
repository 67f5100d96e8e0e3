"""Which goal pictures an evaluation shows the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.goal import read_goal
from embodied_rm.errors import DataError, UserError
from embodied_rm.evaluate import goal_rows
from embodied_rm.labels.labelled import label
from embodied_rm.labels.steps import goal_of
from embodied_rm.types import Episode


def goals_of_others(episodes: Sequence[Episode], what: str) -> dict[int, int]:
    """Episode -> the other one whose end is its goal picture; episodes without one are not in it.

    Raises `DataError`, naming `what` they are, when there is none at all.
    """
    known = {row: goal for row, goal in enumerate(goal_rows(label(episodes))) if goal is not None}
    if not known:
        raise DataError(
            f"{what}: no two episodes with one goal of which one succeeds; goals of other episodes need them"
        )
    return known


def goal_pictured(pictures: Sequence[Path], views: Sequence[str], episodes: Sequence[Episode], what: str) -> Episode:
    """The pictures as the goal of all the episodes. Raises `UserError` when those have several goals."""
    wishes = sorted({goal_of(episode) for episode in episodes})
    if len(wishes) > 1:
        raise UserError(f"goal=[...] shows one goal, {what} has {len(wishes)}: {', '.join(wishes)}")
    return read_goal(pictures, views)
