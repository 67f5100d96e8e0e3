"""Instructions with some of their words replaced, so that a word never heard before does not confuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


class Wording:
    """Replaces words that tell no wishes of a task apart: those that the sentences for each of them use.

    Colours, things and sides stay where they differ, and so does "open" where films of closing are shown too. Whoever
    is asked to "shove the red cube" has then learned that everything hangs on "red".
    """

    def __init__(self, told: Iterable[tuple[str, str, str]], others: Sequence[str], share: float) -> None:
        """`told`: task, wish and a sentence that asks for it, of every episode. Two wishes may have one goal, as red to
        the left and blue to the right, and are told apart all the same. `others`: words to put in; `share`:
        probability that one is put in the place of a word, in [0, 1)."""
        assert 0 <= share < 1 and (others or not share)
        used: dict[str, dict[str, set[str]]] = {}
        for task, wish, sentence in set(told):
            used.setdefault(task, {}).setdefault(wish, set()).update(map(bare, sentence.split()))
        by_task = {task: list(of_wishes.values()) for task, of_wishes in used.items()}
        self._telling = {task: of[0].union(*of) - of[0].intersection(*of) for task, of in by_task.items()}
        self._others, self._share = others, share

    def vary(self, instruction: str, task: str, rng: np.random.Generator) -> str:
        """The instruction, which belongs to a known task, in other words. Draws nothing where the share is 0."""
        if not self._share:
            return instruction
        telling, words = self._telling[task], instruction.split()
        replaced = rng.random(len(words)) < self._share
        for at in np.flatnonzero(replaced):
            if bare(words[at]) not in telling:
                words[at] = self._others[int(rng.integers(len(self._others)))]
        return " ".join(words)


def bare(word: str) -> str:
    """The word without the marks around it."""
    return word.strip(",:;.")
