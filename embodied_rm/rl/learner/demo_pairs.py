"""What a policy imitates: pairs of what was seen and what was done then, and how much each counts."""

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
    """B moments of demonstrations."""

    observation: Tensor
    """float32 [B, D]."""
    action: Tensor
    """float32 [B, A]."""
    weight: Tensor
    """float32 [B], > 0: how often each is drawn, relative to the others."""

    def __len__(self) -> int:
        return len(self.observation)

    def sample(self, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Observations and actions of `count` moments, drawn by weight with replacement; without a generator, by the
        global one."""
        if bool((self.weight == self.weight[0]).all()):
            rows = torch.randint(len(self), (count,), generator=generator)
        else:
            rows = torch.multinomial(self.weight, count, replacement=True, generator=generator)
        return self.observation[rows], self.action[rows]


def make_demo_pairs(episodes: Sequence[Episode], weights: Sequence[Array] | None = None) -> DemoPairs:
    """The moments of demonstrations that count; `weights` [T] of each, None: all alike.

    Raises `DataError` when an episode has no finite state or action, or no moment counts.
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
        raise DataError(f"no moment of these {len(episodes)} demonstrations makes progress: nothing is to be imitated")
    return DemoPairs(observation=observation[mask], action=action[mask], weight=weight[mask])


def save_demo_pairs(folder: Path | str, pairs: DemoPairs) -> None:
    """Write them as a checkpoint folder."""
    save_tensors(folder, {name: getattr(pairs, name) for name in COLUMN_NAMES}, {"architecture": ARCHITECTURE})


def load_demo_pairs(folder: Path | str) -> DemoPairs:
    """Read what `save_pairs` wrote. Raises `CheckpointError` naming the file when it cannot be trusted."""
    tensors, _ = load_tensors(folder, ARCHITECTURE)
    if set(tensors) != set(COLUMN_NAMES):
        raise CheckpointError(f"{folder}: pairs have {', '.join(COLUMN_NAMES)}, got {', '.join(sorted(tensors))}")
    return DemoPairs(**tensors)
