"""Starts that the policy fails from come back more often.

Source: VLA-RL and TwinRL (start-state curricula). A start is a seed: whoever is reset with it begins in the same place
with the same wish, so that any environment whose rows can be seeded one by one has them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import pack_json, unpack_json
from embodied_rm.types import BoolArray, IntArray

FIRST_SEED = 2**31
"""Evaluation uses seeds from 0 on: starts of the curriculum are never among them."""
OUTCOME_WEIGHT = 0.3
"""Weight of the newest outcome of a start in what is known of it."""
MIN_FAILURE_RATE = 0.1
"""What a start that always succeeds is still drawn with, beside 1 for one that always fails."""


class StartCurriculum:
    """A pool of starts, how each went so far, and who is on which."""

    def __init__(self, num_starts: int, num_envs: int, seed: int) -> None:
        """Before anything is known every start counts as failing half of the time."""
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, num_starts]))
        self._seeds: IntArray = FIRST_SEED + self._rng.choice(2**31, num_starts, replace=False)
        self._failure_rates = np.full(num_starts, 0.5)
        self._start_of_env: IntArray = np.zeros(num_envs, np.int64)

    def draw(self, rows: IntArray) -> list[int]:
        """New starts for these rows; the seeds of all rows."""
        weights = np.maximum(self._failure_rates, MIN_FAILURE_RATE)
        self._start_of_env[rows] = self._rng.choice(len(weights), len(rows), p=weights / weights.sum())
        return self._seeds[self._start_of_env].tolist()

    def update(self, rows: IntArray, successes: BoolArray) -> None:
        """How the episodes of these rows went, bool [n]."""
        for start, success in zip(self._start_of_env[rows], successes, strict=True):
            self._failure_rates[start] += OUTCOME_WEIGHT * ((not success) - self._failure_rates[start])

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that later draws depend on."""
        tensors = {
            "failure_rates": torch.from_numpy(self._failure_rates.copy()),
            "start_of_env": torch.from_numpy(self._start_of_env.copy()),
        }
        return {**tensors, "rng": pack_json(self._rng.bit_generator.state)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` of such a pool returned."""
        self._failure_rates, self._start_of_env = state["failure_rates"].numpy().copy(), state["start_of_env"].numpy().copy()
        self._rng.bit_generator.state = unpack_json(state["rng"])
