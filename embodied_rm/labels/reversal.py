"""Films played backwards: who sees a drawer being opened has also seen one being closed.

A film in whose last step something was achieved becomes one in which that is undone, under an opposite instruction
that the data name (the meta column `opposites`). Pictures of a thing at rest do not tell which way time runs.
Source: time reversal as self-supervision (Nair et al., arXiv 1810.01128).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.steps import goal_of, sentences, step_orders, task_of
from embodied_rm.labels.visual_change import changes
from embodied_rm.types import Array, Episode

OPPOSITES = "opposites"
"""The meta column that names the sentences for the last step played backwards."""
ACHIEVED = 0.25
"""Least share of the last step that a film must end with to be worth undoing."""
MOVED = 0.02
"""Change of the last step's share from which on the undoing is under way."""
AT_ONCE = 3
"""Frames within which the undoing is under way if the hand was there when the film began."""
STILL = 0.6
"""Change of the pictures, see `visual_change.changes`, below which nothing moves."""


def with_reversals(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes, and those of them that can be played backwards, backwards.

    Raises `DataError` where no episode names an opposite.
    """
    if not any(sentences(episode, OPPOSITES) for episode in episodes):
        raise DataError(
            f"reversals=true plays films backwards under an opposite instruction, but no episode has the column "
            f"{OPPOSITES}; embodied-rm collect records it for tasks that have one"
        )
    orders = step_orders(episodes)
    turned = (backwards(episode, len(orders.get(task_of(episode), ()))) for episode in episodes)
    return [*episodes, *(episode for episode in turned if episode is not None)]


def backwards(episode: Episode, steps: int) -> Episode | None:
    """The film played backwards under its first opposite instruction, the others its paraphrases; None where there is
    nothing to undo. `steps`: of its task, whose last one is undone."""
    opposites, share = sentences(episode, OPPOSITES), last_share(episode, steps)
    if not opposites or share is None:
        return None
    change = changes(episode)
    last = int(np.flatnonzero(change > STILL)[-1])
    if share[last] < ACHIEVED:
        return None
    turned = {name: frames[last::-1] for name, frames in episode.views.items()}
    film = replace(episode, name=f"{episode.name} backwards", views=turned, instruction=opposites[0], success=True,
                   steps=(), progress=None, state=None, action=None, judged=None)  # fmt: skip
    wish = {**episode.meta, "goal": f"not: {goal_of(episode)}", "paraphrases": " | ".join(opposites)}
    return replace(film, progress=undoing(share[last::-1], np.append(change[:1], change[last:0:-1])), meta=wish)


def last_share(episode: Episode, steps: int) -> Array | None:
    """float32 [T]: share of the last step that is done; None where the true progress or the steps are unknown."""
    if episode.progress is None or not steps:
        return None
    return np.clip(episode.progress * steps - (steps - 1), 0, 1)


def undoing(share: Array, change: Array) -> Array:
    """float32 [T] in [0, 1]: half for getting there, as the pictures change, half for what is undone of `share` [T].

    `share` begins with what is to be undone. A film that begins with it under way has got there.
    """
    begun = int(np.argmax(share < share[0] - MOVED))
    way = np.maximum(change[1 : begun + 1] - STILL, 0)
    there = np.ones(len(share))
    if len(way) > AT_ONCE and way.any():
        gone = np.cumsum(way, dtype=np.float64)
        there[: begun + 1] = np.append(0, gone / gone[-1])
    undone = np.clip(1 - share / share[0], 0, 1)
    return (0.5 * there + 0.5 * undone).astype(np.float32)
