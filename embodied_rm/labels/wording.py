"""Instructions with some of their words replaced, so that a word never heard before does not confuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


class Wording:
    """Replaces words that tell no goals of a task apart; colours, things and sides stay where they do.

    Whoever is asked to "shove the red cube" has then learned that everything hangs on "red".
    """

    def __init__(self, goals: Iterable[tuple[str, str]], others: Sequence[str], share: float) -> None:
        """`goals`: task and goal in words of every episode; `others`: words to put in; `share`: probability that one is
        put in the place of a word, in [0, 1)."""
        assert 0 <= share < 1 and (others or not share)
        by_task: dict[str, list[set[str]]] = {}
        for task, goal in set(goals):
            by_task.setdefault(task, []).append(set(goal.split()))
        self._telling = {
            task: found[0].union(*found) - found[0].intersection(*found) for task, found in by_task.items()
        }
        self._others, self._share = others, share

    def vary(self, instruction: str, task: str, rng: np.random.Generator) -> str:
        """The instruction, which belongs to a known task, in other words. Draws nothing where the share is 0."""
        if not self._share:
            return instruction
        telling, words = self._telling[task], instruction.split()
        replaced = rng.random(len(words)) < self._share
        for at in np.flatnonzero(replaced):
            if words[at].strip(",:;.") not in telling:
                words[at] = self._others[int(rng.integers(len(self._others)))]
        return " ".join(words)
