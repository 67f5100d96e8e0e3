"""Weighted pairs of observation and action, for imitation.

Source of the weights by progress: the reward-aligned behavior cloning (RA-BC) of SARM.
"""

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
FULL_WEIGHT_GAIN = 0.01  # gain of progress above which a frame has weight 1 (kappa)
EPSILON = 1e-8


@dataclass(frozen=True, kw_only=True)
class DemoPairs:
    """B weighted pairs of demonstrations."""

    observation: Tensor  # float32 [B, D]
    action: Tensor  # float32 [B, A]
    weight: Tensor  # float32 [B], > 0: relative sampling weight

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
    check_columns(episodes, "cloning")
    observation = torch.as_tensor(np.concatenate([e.state for e in episodes]), dtype=torch.float32)
    action = torch.as_tensor(np.concatenate([e.action for e in episodes]), dtype=torch.float32)
    weight = torch.ones(len(observation)) if weights is None else torch.from_numpy(np.concatenate(weights))
    mask = weight > 0
    if not mask.any():
        raise DataError(f"no frame of these {len(episodes)} demonstrations makes progress: there is nothing to imitate")
    return DemoPairs(observation=observation[mask], action=action[mask], weight=weight[mask])


def check_columns(episodes: Sequence[Episode], learner: str) -> None:
    """Raise `DataError` if an episode has no finite state or action, which `learner` needs."""
    for episode in episodes:
        for name, column in (("state", episode.state), ("action", episode.action)):
            if column is None or column.ndim != 2 or not np.isfinite(column).all():
                raise DataError(f"{episode.name}: {learner} needs a finite {name} [T, D] in every frame")


def progress_gains(progress: Array, horizon: int) -> Array:
    """Return the gain of progress over the next `horizon` frames, float32 [T]; fewer frames at the end."""
    future = np.minimum(np.arange(len(progress)) + horizon, len(progress) - 1)
    return progress[future] - progress


def progress_weights(curves: Sequence[Array], horizon: int) -> list[Array]:
    """Return the weights of each episode, float32 [T] in [0, 1], from its progress according to a reward model.

    The weight is 1 for a gain above `FULL_WEIGHT_GAIN`, and 0 for a loss of progress. In between it is
    clip((gain - (mean - 2 std)) / 4 std, 0, 1), with mean and standard deviation of all gains.
    """
    episode_gains = [progress_gains(curve, horizon) for curve in curves]
    all_gains = np.concatenate(episode_gains)
    mean, std = float(all_gains.mean()), float(all_gains.std())

    def weight(gain: Array) -> Array:
        ramp = np.clip((gain - (mean - 2 * std)) / (4 * std + EPSILON), 0, 1)
        return np.where(gain > FULL_WEIGHT_GAIN, 1, np.where(gain >= 0, ramp, 0)).astype(np.float32)

    return [weight(gain) for gain in episode_gains]


def save_demo_pairs(folder: Path | str, pairs: DemoPairs) -> None:
    """Write the pairs as a checkpoint folder."""
    save_tensors(folder, {name: getattr(pairs, name) for name in COLUMN_NAMES}, {"architecture": ARCHITECTURE})


def load_demo_pairs(folder: Path | str) -> DemoPairs:
    """Read pairs of `save_demo_pairs`; raise `CheckpointError` with the file name if they are invalid."""
    tensors, _ = load_tensors(folder, ARCHITECTURE)
    if set(tensors) != set(COLUMN_NAMES):
        raise CheckpointError(f"{folder}: pairs have {', '.join(COLUMN_NAMES)}, got {', '.join(sorted(tensors))}")
    return DemoPairs(**tensors)
