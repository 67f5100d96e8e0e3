"""Instructions with some of their words replaced, so that a word never heard before does not confuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


class InstructionAugmenter:
    """Replaces words that tell no wishes of a task apart: those that the sentences for each of them use.

    Colors, things and sides stay where they differ, and so does "open" where videos of closing are shown too. Whoever
    is asked to "shove the red cube" has then learned that everything hangs on "red".
    """

    def __init__(
        self, examples: Iterable[tuple[str, str, str]], replacement_words: Sequence[str], replacement_prob: float
    ) -> None:
        """`told`: task, wish and a sentence that asks for it, of every episode. Two wishes may have one goal, as red to
        the left and blue to the right, and are told apart all the same. `others`: words to put in; `share`:
        probability that one is put in the place of a word, in [0, 1)."""
        assert 0 <= replacement_prob < 1 and (replacement_words or not replacement_prob)
        words_by_task: dict[str, dict[str, set[str]]] = {}
        for task, intent, instruction in set(examples):
            words_by_task.setdefault(task, {}).setdefault(intent, set()).update(
                map(strip_punctuation, instruction.split())
            )
        word_sets_by_task = {task: list(words_by_intent.values()) for task, words_by_intent in words_by_task.items()}
        self._discriminative_words = {
            task: word_sets[0].union(*word_sets) - word_sets[0].intersection(*word_sets)
            for task, word_sets in word_sets_by_task.items()
        }
        self._replacement_words, self._replacement_prob = replacement_words, replacement_prob

    def augment(self, instruction: str, task: str, rng: np.random.Generator) -> str:
        """The instruction, which belongs to a known task, in other words. Draws nothing where the share is 0."""
        if not self._replacement_prob:
            return instruction
        discriminative, words = self._discriminative_words[task], instruction.split()
        mask = rng.random(len(words)) < self._replacement_prob
        for i in np.flatnonzero(mask):
            if strip_punctuation(words[i]) not in discriminative:
                words[i] = self._replacement_words[int(rng.integers(len(self._replacement_words)))]
        return " ".join(words)


def strip_punctuation(word: str) -> str:
    """The word without the marks around it."""
    return word.strip(",:;.")
