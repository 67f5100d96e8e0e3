"""Instructions that want something else than an episode does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.labelled import LabelledEpisode
from embodied_rm.labels.wording import Wording

UNWANTED = 0.2
"""Share of the foreign instructions that ask for nothing: half of them forbid what the episode does, half are empty."""
NEGATIONS = ("do not ", "don't ", "never ")


class ForeignInstructions:
    """Instructions that want something else than an episode does, of its own task as often as of any.

    In words varied like those of what it does: else an odd word would tell that the wish is its own.
    """

    def __init__(
        self, episodes: Sequence[LabelledEpisode], wording: Wording, further: Sequence[tuple[str, str]] = ()
    ) -> None:
        """`further`: tasks and instructions of goals that no episode has."""
        self._wording = wording
        distinct = [episode for episode in episodes if episode.distinct_goal is not None]
        told = {(str(e.distinct_goal), e.task, text) for e in distinct for text in e.sentences}
        known = sorted(told | {(text, task, text) for task, text in further})
        goals = {(goal, task) for goal, task, _ in known}
        wanted = {goal: {goal} for goal, _ in goals}
        for episode in distinct:
            wanted[str(episode.distinct_goal)].update(episode.fulfils)
        self._others = {
            goal: [(text, kind) for other, kind, text in known if other not in own] for goal, own in wanted.items()
        }
        self._near = {
            (goal, task): [(text, kind) for text, kind in self._others[goal] if kind == task] for goal, task in goals
        }

    def draw(self, episode: LabelledEpisode, rng: np.random.Generator) -> str | None:
        """One of them; None where no other goal is known. Now and then the episode's own, negated, or no words at all.

        Another object of the same task differs in one word: drawn as rarely as it comes among all tasks, that word is
        not learned.
        """
        if episode.distinct_goal is None or not self._others[episode.distinct_goal]:
            return None
        if rng.random() < UNWANTED:
            if rng.random() >= 0.5:
                return ""
            negation = NEGATIONS[rng.integers(len(NEGATIONS))]
            return negation + self._wording.vary(episode.sentence(rng), episode.task, rng)
        near = self._near[episode.distinct_goal, episode.task]
        pool = near if near and rng.random() < 0.5 else self._others[episode.distinct_goal]
        return self._wording.vary(*pool[rng.integers(len(pool))], rng)
