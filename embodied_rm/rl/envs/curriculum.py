"""Starts that the policy fails from come back more often.

Source: VLA-RL and TwinRL (start-state curricula). A start is a seed: whoever is reset with it begins in the same place
with the same wish, so that any environment whose rows can be seeded one by one has them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import packed, unpacked
from embodied_rm.types import BoolArray, IntArray

FIRST_SEED = 2**31
"""Evaluation uses seeds from 0 on: starts of the curriculum are never among them."""
MEMORY = 0.3
"""Weight of the newest outcome of a start in what is known of it."""
LEAST = 0.1
"""What a start that always succeeds is still drawn with, beside 1 for one that always fails."""


class Curriculum:
    """A pool of starts, how each went so far, and who is on which."""

    def __init__(self, starts: int, rows: int, seed: int) -> None:
        """Before anything is known every start counts as failing half of the time."""
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, starts]))
        self._seeds: IntArray = FIRST_SEED + self._rng.choice(2**31, starts, replace=False)
        self._failing = np.full(starts, 0.5)
        self._on: IntArray = np.zeros(rows, np.int64)

    def draw(self, rows: IntArray) -> list[int]:
        """New starts for these rows; the seeds of all rows."""
        odds = np.maximum(self._failing, LEAST)
        self._on[rows] = self._rng.choice(len(odds), len(rows), p=odds / odds.sum())
        return self._seeds[self._on].tolist()

    def learn(self, rows: IntArray, succeeded: BoolArray) -> None:
        """How the episodes of these rows went, bool [n]."""
        for start, success in zip(self._on[rows], succeeded, strict=True):
            self._failing[start] += MEMORY * ((not success) - self._failing[start])

    def state(self) -> dict[str, Tensor]:
        """Everything that later draws depend on."""
        known = {"failing": torch.from_numpy(self._failing.copy()), "on": torch.from_numpy(self._on.copy())}
        return {**known, "stream": packed(self._rng.bit_generator.state)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` of such a pool returned."""
        self._failing, self._on = state["failing"].numpy().copy(), state["on"].numpy().copy()
        self._rng.bit_generator.state = unpacked(state["stream"])
