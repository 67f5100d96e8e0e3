"""Weighted pairs of observation and action, for imitation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import load_tensors, save_tensors
from embodied_rm.errors import CheckpointError, DataError
from embodied_rm.types import Array, Episode

ARCHITECTURE = "imitated_pairs"
COLUMN_NAMES = ("observation", "action", "weight")


@dataclass(frozen=True, kw_only=True)
class DemoPairs:
    """B weighted pairs of demonstrations."""

    observation: Tensor
    """float32 [B, D]."""
    action: Tensor
    """float32 [B, A]."""
    weight: Tensor
    """float32 [B], > 0: relative sampling weight."""

    def __len__(self) -> int:
        return len(self.observation)

    def sample(self, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Sample observations [count, D] and actions [count, A] by weight, with replacement.

        Without a generator, use the global one.
        """
        if bool((self.weight == self.weight[0]).all()):
            rows = torch.randint(len(self), (count,), generator=generator)
        else:
            rows = torch.multinomial(self.weight, count, replacement=True, generator=generator)
        return self.observation[rows], self.action[rows]


def make_demo_pairs(episodes: Sequence[Episode], weights: Sequence[Array] | None = None) -> DemoPairs:
    """Return the pairs of demonstrations that have a positive weight; `weights` [T] per episode, None: 1.

    An episode without finite state and action, or no positive weight, raises `DataError`.
    """
    for episode in episodes:
        for name, column in (("state", episode.state), ("action", episode.action)):
            if column is None or column.ndim != 2 or not np.isfinite(column).all():
                raise DataError(f"{episode.name}: cloning needs a finite {name} [T, D] in every frame")
    observation = torch.as_tensor(np.concatenate([e.state for e in episodes]), dtype=torch.float32)
    action = torch.as_tensor(np.concatenate([e.action for e in episodes]), dtype=torch.float32)
    weight = torch.ones(len(observation)) if weights is None else torch.from_numpy(np.concatenate(weights))
    mask = weight > 0
    if not mask.any():
        raise DataError(f"no frame of these {len(episodes)} demonstrations makes progress: there is nothing to imitate")
    return DemoPairs(observation=observation[mask], action=action[mask], weight=weight[mask])


def save_demo_pairs(folder: Path | str, pairs: DemoPairs) -> None:
    """Write the pairs as a checkpoint folder."""
    save_tensors(folder, {name: getattr(pairs, name) for name in COLUMN_NAMES}, {"architecture": ARCHITECTURE})


def load_demo_pairs(folder: Path | str) -> DemoPairs:
    """Read pairs of `save_demo_pairs`; raise `CheckpointError` with the file name if they are invalid."""
    tensors, _ = load_tensors(folder, ARCHITECTURE)
    if set(tensors) != set(COLUMN_NAMES):
        raise CheckpointError(f"{folder}: pairs have {', '.join(COLUMN_NAMES)}, got {', '.join(sorted(tensors))}")
    return DemoPairs(**tensors)
