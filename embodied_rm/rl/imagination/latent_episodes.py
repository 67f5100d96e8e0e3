"""Recorded episodes as a world model sees them: observations, actions, and the states of a reward model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import DataError
from embodied_rm.rl.learner.demo_pairs import check_columns
from embodied_rm.types import Array, Episode


@dataclass(frozen=True, kw_only=True)
class LatentEpisode:
    """One recorded episode of T frames."""

    observation: Tensor  # float32 [T, D], of the policy
    action: Tensor  # float32 [T, A]; that of the last frame is not taken
    embedding: Tensor  # float32 [T, W], the reward model's state of each frame
    progress: Tensor  # float32 [T] in [0, 1], predicted by the reward model
    is_demonstration: bool  # whether its actions are worth imitating

    def __len__(self) -> int:
        return len(self.progress)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """B windows of H transitions."""

    observation: Tensor  # float32 [B, H + 1, D]
    action: Tensor  # float32 [B, H, A]
    embedding: Tensor  # float32 [B, H + 1, W]
    progress: Tensor  # float32 [B, H + 1]


def make_latent_episodes(
    episodes: Sequence[Episode], embeddings: Sequence[Tensor], progress: Sequence[Array]
) -> list[LatentEpisode]:
    """Return episodes with the embeddings [T, W] and the progress [T] of a reward model.

    Raises:
        DataError: An episode has no finite state or action, or a frame has no visible view.
    """
    check_columns(episodes, "a world model")
    for episode, embedding in zip(episodes, embeddings, strict=True):
        if len(embedding) != len(episode):
            raise DataError(f"{episode.name}: {len(episode) - len(embedding)} of {len(episode)} frames show no view")
    return [
        LatentEpisode(
            observation=torch.from_numpy(np.asarray(episode.state, np.float32)),
            action=torch.from_numpy(np.asarray(episode.action, np.float32)),
            embedding=embedding,
            progress=torch.from_numpy(np.clip(curve, 0, 1).astype(np.float32)),
            is_demonstration=episode.success is True,
        )
        for episode, embedding, curve in zip(episodes, embeddings, progress, strict=True)
    ]


class WindowSampler:
    """Draws windows of H transitions uniformly from all places in the episodes."""

    def __init__(self, episodes: Sequence[LatentEpisode], horizon: int) -> None:
        """
        Args:
            episodes: The episodes; those with fewer than `horizon` transitions are not used.
            horizon: Transitions of a window, H.

        Raises:
            DataError: No episode is long enough.
        """
        long_enough = [episode for episode in episodes if len(episode) > horizon]
        if not long_enough:
            raise DataError(f"none of the {len(episodes)} episodes has {horizon} transitions")
        self.horizon = horizon
        self._columns = {
            name: torch.cat([getattr(episode, name) for episode in long_enough])
            for name in ("observation", "action", "embedding", "progress")
        }
        ends = np.cumsum([len(episode) for episode in long_enough])
        starts = [np.arange(end - len(e), end - horizon) for end, e in zip(ends, long_enough, strict=True)]
        self.starts = torch.from_numpy(np.concatenate(starts))  # first frame of every window, int64 [S]

    def windows(self, starts: Tensor) -> Windows:
        """Return the windows that start at frames int64 [B] of `starts`."""
        rows = starts[:, None] + torch.arange(self.horizon + 1)
        columns = {name: column[rows] for name, column in self._columns.items()}
        return Windows(**{**columns, "action": columns["action"][:, :-1]})

    def sample(self, count: int, generator: torch.Generator) -> Windows:
        """Draw windows with replacement."""
        return self.windows(self.starts[torch.randint(len(self.starts), (count,), generator=generator)])
