"""Episodes that begin in promising states of failed ones: first return, then explore.

Sources: Go-Explore (arXiv 2004.12919) for the archive; VLAC for its use with a progress model. An episode that failed
near its end is tried again from its last promising state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, pack_json, strip_prefix, unpack_json
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.types import Array, BoolArray, IntArray

StoredState = dict[str, Tensor]
"""One environment's state by name: its simulation, its critic's observation, its potential and the model's state."""


@dataclass(frozen=True, kw_only=True)
class ArchiveConfig:
    """Episodes that begin in states of the archive."""

    share: float = 0.0  # share of episodes that begin in one; 0: none
    size: int = 64  # states that are kept, the newest ones
    min_gain: float = 0.1  # gain of potential over the last kept state of the episode, or its start

    def __post_init__(self) -> None:
        check_minimum(self, 1, "size", prefix="archive.")
        if not 0 <= self.share < 1:
            raise UserError(f"archive.share must be from 0 to less than 1, got {self.share}")
        if not self.min_gain > 0:
            raise UserError(f"archive.min_gain must be > 0, got {self.min_gain}")


class StateArchive:
    """The newest promising states, at most one per failed episode, and the promising state of each running episode."""

    def __init__(self, config: ArchiveConfig, num_envs: int, seed: int) -> None:
        """Begin with an empty archive and no episode; `begin` opens them."""
        self._config = config
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, config.size]))
        self._archive: deque[StoredState] = deque(maxlen=config.size)
        self._candidates: dict[int, StoredState] = {}
        self._kept_potential = np.zeros(num_envs)
        self.has_returned: BoolArray = np.zeros(num_envs, bool)
        """[N]: whether the episode of the row began in a state of the archive."""

    def __len__(self) -> int:
        return len(self._archive)

    def clear(self) -> None:
        """Forget all states."""
        self._archive.clear()
        self._candidates.clear()

    def begin(self, rows: IntArray, potential: Array) -> None:
        """Begin the episodes of rows at starts of the environment with these potentials [n]."""
        self._kept_potential[rows] = potential
        self.has_returned[rows] = False
        for row in rows.tolist():
            self._candidates.pop(row, None)

    def draw(self, rows: IntArray) -> dict[int, StoredState]:
        """Draw which of the rows return, and to which states; their episodes begin there."""
        if not self._archive:
            return {}
        chosen = rows[self._rng.random(len(rows)) < self._config.share]
        states = {int(row): self._archive[self._rng.integers(len(self._archive))] for row in chosen}
        for row, state in states.items():
            self._kept_potential[row], self.has_returned[row] = float(state["potential"]), True
        return states

    def promising_rows(self, potential: Array, running: BoolArray) -> IntArray:
        """Return the running rows whose potential [N] has gained at least `min_gain`."""
        return np.flatnonzero(running & (potential >= self._kept_potential + self._config.min_gain))

    def keep(self, row: int, state: StoredState) -> None:
        """Keep the state of a running episode, in place of its earlier one."""
        self._candidates[row], self._kept_potential[row] = state, float(state["potential"])

    def end(self, rows: IntArray, successes: BoolArray) -> None:
        """End the episodes of rows: the kept states of failed ones go into the archive, those of successes do not."""
        for row, success in zip(rows.tolist(), successes.tolist(), strict=True):
            state = self._candidates.pop(row, None)
            if state is not None and not success:
                self._archive.append(state)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that later draws depend on."""
        named = {
            **{f"archive.{index}": state for index, state in enumerate(self._archive)},
            **{f"candidate.{row}": state for row, state in self._candidates.items()},
        }
        return {
            "rng": pack_json(self._rng.bit_generator.state),
            "kept_potential": torch.from_numpy(self._kept_potential.copy()),
            "has_returned": torch.from_numpy(self.has_returned.copy()),
            **{key: tensor for name, state in named.items() for key, tensor in add_prefix(name, state).items()},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_dict` returned."""
        self._rng.bit_generator.state = unpack_json(state["rng"])
        self._kept_potential = state["kept_potential"].numpy().copy()
        self.has_returned = state["has_returned"].numpy().copy()
        archive, candidates = (group_by_number(strip_prefix(kind, state)) for kind in ("archive", "candidate"))
        self._archive = deque((archive[number] for number in sorted(archive)), maxlen=self._config.size)
        self._candidates = candidates


def group_by_number(state: Mapping[str, Tensor]) -> dict[int, StoredState]:
    """Return the states whose tensors are named `number.name`, by their numbers."""
    numbers = {name.split(".")[0] for name in state}
    return {int(number): strip_prefix(number, state) for number in numbers}
