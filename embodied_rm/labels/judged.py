"""What another judge said of each frame: a slow one's judgement, to be learned by a model that is fast enough to loop.

Source: ONI (arXiv 2410.23022): a large model labels what was collected, a small one learns the labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.labels.steps import UNLABELLED
from embodied_rm.labels.targets import Targets
from embodied_rm.types import Episode, Progress

DONE = 0.5
"""Probability of success from which a task counts as done."""


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode: progress where it was scored, "done" where the judge says, else as the episode
    ended.

    Raises `DataError` naming an episode that was not judged, and where nobody says when a task is done.
    """
    targets = [_target(episode) for episode in episodes]
    if not any(target.done_known.any() for target in targets):
        raise DataError(
            "labels 'judged': the judge does not say when a task is done, and of no episode is it known how it ended "
            "(a success column): nobody would say what done is"
        )
    return targets


def _target(episode: Episode) -> Targets:
    said = episode.judged
    if said is None:
        raise DataError(
            f"{episode.name}: labels 'judged' are what a judge said of it, and none did: judged=... says where"
        )
    done, known = verdicts(episode, said)
    return Targets(
        progress=np.clip(said.value, 0, 1),
        known=said.valid,
        step=np.full(len(episode), UNLABELLED),
        done=done,
        done_known=known,
    )


def verdicts(episode: Episode, said: Progress) -> tuple[np.ndarray, np.ndarray]:
    """Whether the task is done, and whether that is known, bool [T] each."""
    told = said.valid & np.isfinite(said.success)
    told[0] = False  # a judge opens an episode with it
    if told.any():
        return np.where(told, said.success >= DONE, False), told
    done, known = np.zeros((2, len(episode)), bool)
    done[-1], known[-1] = episode.success is True, episode.success is not None
    return done, known
