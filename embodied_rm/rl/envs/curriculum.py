"""A curriculum of start states: starts from which the policy fails are drawn more often.

Source: VLA-RL and TwinRL (start-state curricula). A start is a seed: an environment that is reset with it starts in the
same state with the same instruction. Every environment whose rows can be seeded one by one has such starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import pack_json, unpack_json
from embodied_rm.rewards.transitions import FloatArray
from embodied_rm.types import BoolArray, IntArray

FIRST_SEED = 2**31
"""Smallest seed of a start. Evaluation uses seeds from 0 on, so it never uses a start of the curriculum."""
OUTCOME_WEIGHT = 0.3  # weight of the last outcome in the failure rate of a start (exponential moving average)
MIN_FAILURE_RATE = 0.1  # smallest sampling weight of a start; a start that always fails has weight 1


@dataclass(frozen=True, kw_only=True)
class StartPool:
    """S starts and how often the policy fails from them."""

    seeds: IntArray  # [S]
    failure_rates: FloatArray  # [S], in [0, 1]


class StartCurriculum:
    """A pool of starts, their failure rates, and the start of each environment."""

    def __init__(self, num_starts: int, num_envs: int, seed: int) -> None:
        """Draw a pool of starts. The initial failure rate of each is 0.5."""
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, num_starts]))
        self._seeds: IntArray = FIRST_SEED + self._rng.choice(2**31, num_starts, replace=False)
        self._failure_rates = np.full(num_starts, 0.5)
        self._start_of_env: IntArray = np.zeros(num_envs, np.int64)

    @classmethod
    def from_pool(cls, pool: StartPool, num_envs: int, seed: int) -> StartCurriculum:
        """Begin with given starts and failure rates."""
        curriculum = cls(len(pool.seeds), num_envs, seed)
        curriculum._seeds, curriculum._failure_rates = pool.seeds.copy(), pool.failure_rates.copy()
        return curriculum

    @property
    def pool(self) -> StartPool:
        """Return the starts with their present failure rates."""
        return StartPool(seeds=self._seeds.copy(), failure_rates=self._failure_rates.copy())

    def draw(self, rows: IntArray) -> list[int]:
        """Draw new starts for these rows, and return the seeds of all rows."""
        weights = np.maximum(self._failure_rates, MIN_FAILURE_RATE)
        self._start_of_env[rows] = self._rng.choice(len(weights), len(rows), p=weights / weights.sum())
        return self._seeds[self._start_of_env].tolist()

    def update(self, rows: IntArray, successes: BoolArray) -> None:
        """Update the failure rates with the outcomes of the episodes of these rows, bool [n]."""
        for start, success in zip(self._start_of_env[rows], successes, strict=True):
            self._failure_rates[start] += OUTCOME_WEIGHT * ((not success) - self._failure_rates[start])

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that later draws depend on."""
        return {
            "seeds": torch.from_numpy(self._seeds.copy()),
            "failure_rates": torch.from_numpy(self._failure_rates.copy()),
            "start_of_env": torch.from_numpy(self._start_of_env.copy()),
            "rng": pack_json(self._rng.bit_generator.state),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the state that `state_dict` returned."""
        if "seeds" in state:  # the file that they were read from may have changed since then
            self._seeds = state["seeds"].numpy().copy()
        self._failure_rates = state["failure_rates"].numpy().copy()
        self._start_of_env = state["start_of_env"].numpy().copy()
        self._rng.bit_generator.state = unpack_json(state["rng"])
