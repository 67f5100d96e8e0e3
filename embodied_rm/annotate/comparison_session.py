"""State of a session in which a person compares clips: the pairs as the page has them, and the answers so far."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.data.source import EpisodeSource
from embodied_rm.labels.comparisons import (
    COMPARISONS_FILE,
    Clip,
    ClipAnswer,
    ClipComparison,
    read_answers,
    write_comparisons,
)

ANSWERS: Mapping[str, ClipAnswer] = {"A": "first", "B": "second", "neither": "neither", "skip": "unanswered"}
"""Choice of the page -> answer, where clip A is the first one."""
EXCHANGED: Mapping[ClipAnswer, ClipAnswer] = {"first": "second", "second": "first"}


class ComparisonSession:
    """Pairs of clips of a source, and a person's answers, stored after each of them. Thread-safe."""

    def __init__(self, source: EpisodeSource, pairs: Sequence[ClipComparison], folder: Path, seed: int) -> None:
        """
        Args:
            source: The episodes.
            pairs: The pairs, unanswered.
            folder: Run folder of the table. Answers that it has are kept.
            seed: Decides which clip of a pair is on the left, so that no side is preferred.

        Raises:
            UserError: The folder has comparisons of other pairs.
        """
        self.source = source
        self._path = folder / COMPARISONS_FILE
        answered = read_answers(self._path, pairs)
        self.comparisons = [*answered, *pairs[len(answered) :]]
        self._is_exchanged = np.random.default_rng([seed, len(pairs)]).random(len(pairs)) < 0.5
        self._rows = {meta.name: row for row, meta in enumerate(source.meta)}
        self._lock = threading.Lock()

    def overview(self) -> dict[str, Any]:
        """Return the views, and the choice of each pair, as JSON."""
        return {"views": list(self.source.views), "choices": [self.choice(i) for i in range(len(self.comparisons))]}

    def pair(self, index: int) -> dict[str, Any]:
        """Return a pair as JSON, without the names of its episodes, which may say how they end."""
        comparison = self.comparisons[index]
        clips = [comparison.first, comparison.second]
        if self._is_exchanged[index]:
            clips.reverse()
        instruction = self.source.meta[self._rows[comparison.first.episode]].instruction
        return {"instruction": instruction, "clips": [self._clip(clip) for clip in clips], "choice": self.choice(index)}

    def choice(self, index: int) -> str:
        """Return the choice of a pair, in the order of the page."""
        on_page = self._exchange(index, self.comparisons[index].answer)
        return next((choice for choice, answer in ANSWERS.items() if answer == on_page), "skip")

    def store(self, index: int, choice: str) -> None:
        """Store the choice of a pair, one of `ANSWERS`."""
        answer = self._exchange(index, ANSWERS[choice])
        with self._lock:
            self.comparisons[index] = replace(self.comparisons[index], answer=answer)
            last = max((i for i, c in enumerate(self.comparisons) if c.answer != "unanswered"), default=-1)
            write_comparisons(self._path, self.comparisons[: last + 1])

    def counts(self) -> Counter[str]:
        """Return how often each answer was given."""
        return Counter(comparison.answer for comparison in self.comparisons)

    def close(self) -> None:
        """Wait for an answer that is being stored."""
        self._lock.acquire()

    def _exchange(self, index: int, answer: ClipAnswer) -> ClipAnswer:
        """Convert an answer between the table and the page, which may have the clips in the other order."""
        return EXCHANGED.get(answer, answer) if self._is_exchanged[index] else answer

    def _clip(self, clip: Clip) -> dict[str, Any]:
        row = self._rows[clip.episode]
        frames = clip.frames(self.source.meta[row].length)
        length = frames.stop - frames.start
        return {"episode": row, "start": frames.start, "length": length, "fps": self.source.frame_rate(row)}
