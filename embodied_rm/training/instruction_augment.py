"""Random word replacement in instructions, for robustness to unknown words."""

from collections.abc import Iterable, Sequence

import numpy as np


class InstructionAugmenter:
    """Replaces words that do not discriminate between the intents of a task: those that all intents use.

    Colors, objects and sides are kept if they differ, and so is "open" if there are videos of closing too.
    """

    def __init__(
        self, examples: Iterable[tuple[str, str, str]], replacement_words: Sequence[str], replacement_prob: float
    ) -> None:
        """`examples`: (task, intent, instruction) per episode.

        Different intents may have the same goal, such as "red left" and "blue right"; their words still discriminate.
        """
        assert 0 <= replacement_prob < 1 and (replacement_words or not replacement_prob)
        words_by_task: dict[str, dict[str, set[str]]] = {}
        for task, intent, instruction in set(examples):
            words = words_by_task.setdefault(task, {}).setdefault(intent, set())
            words.update(map(strip_punctuation, instruction.split()))
        self._discriminative_words: dict[str, set[str]] = {}
        for task, words_by_intent in words_by_task.items():
            first, *others = words_by_intent.values()
            self._discriminative_words[task] = first.union(*others) - first.intersection(*others)
        self._replacement_words, self._replacement_prob = replacement_words, replacement_prob

    def augment(self, instruction: str, task: str, rng: np.random.Generator) -> str:
        """Replace random words of an instruction of a known task. Uses no random numbers for probability 0."""
        if not self._replacement_prob:
            return instruction
        discriminative, words = self._discriminative_words[task], instruction.split()
        mask = rng.random(len(words)) < self._replacement_prob
        for i in np.flatnonzero(mask):
            if strip_punctuation(words[i]) not in discriminative:
                words[i] = self._replacement_words[int(rng.integers(len(self._replacement_words)))]
        return " ".join(words)


def strip_punctuation(word: str) -> str:
    """Strip punctuation from both ends of a word."""
    return word.strip(",:;.")
