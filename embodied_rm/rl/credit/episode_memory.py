"""The episodes of the last rollouts, as training data of rewards that are learned from outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embodied_rm.rewards.transitions import number_episodes
from embodied_rm.types import BoolArray, IntArray

NUM_ROLLOUTS = 3  # number of the last rollouts that are training data: one rollout cuts most episodes, three cut few


@dataclass(frozen=True, kw_only=True)
class CompleteEpisodes:
    """The B steps of episodes that are complete."""

    columns: Mapping[str, Tensor]  # name -> [B, ...]
    index: Tensor  # int64 [B]: the episode of each step, from 0
    count: int  # number of episodes


class EpisodeMemory:
    """Columns [T, N, ...] of the last `NUM_ROLLOUTS` rollouts, or of more if the longest episode needs them."""

    def __init__(self, max_episode_steps: int | None = None) -> None:
        """
        Args:
            max_episode_steps: Time limit of an episode. With None, an episode longer than `NUM_ROLLOUTS` - 1 rollouts
                may be incomplete.
        """
        self._max_episode_steps = max_episode_steps or 0
        self._rollouts: dict[str, Tensor] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no rollout was added."""
        return not self._rollouts

    def add(self, columns: Mapping[str, npt.NDArray[np.float32]], done: BoolArray, valid: BoolArray) -> None:
        """Add a rollout.

        Args:
            columns: Name -> values [T, N, ...]; the names are those of the first rollout.
            done: Whether an episode ended with the step, bool [T, N].
            valid: Whether the transition is valid, bool [T, N].
        """
        # An episode starts after the end of another one, across rollouts too.
        starts_episode = self._rollouts["done"][-1].numpy() if self._rollouts else np.ones(done.shape[1], bool)
        first = np.concatenate([starts_episode[None], done[:-1]])
        # An episode that ends with the first new step began `max_episode_steps` - 1 steps before it.
        num_steps = max(NUM_ROLLOUTS * len(done), self._max_episode_steps + len(done))
        for name, column in {**columns, "done": done, "first": first, "valid": valid}.items():
            added = torch.from_numpy(np.ascontiguousarray(column))
            previous = self._rollouts.get(name, added[:0])
            self._rollouts[name] = torch.cat([previous, added])[-num_steps:]

    def end_episodes(self) -> None:
        """End the running episodes without an outcome: they are no training data, and the next steps start new ones."""
        if self._rollouts:
            self._rollouts["valid"][-1] &= self._rollouts["done"][-1]
            self._rollouts["done"][-1] = True

    def complete_episodes(self) -> CompleteEpisodes:
        """Return the steps of all episodes that are complete, in order of time."""
        done, first, valid = (self._rollouts[name].numpy() for name in ("done", "first", "valid"))
        episode_ids, complete = find_complete_episodes(done, first, valid)
        numbers, index = np.unique(episode_ids[complete], return_inverse=True)
        rows = torch.from_numpy(complete)
        return CompleteEpisodes(
            columns={name: column[rows] for name, column in self._rollouts.items()},
            index=torch.from_numpy(index),
            count=len(numbers),
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return all columns."""
        return dict(self._rollouts)

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state that `state_dict` returned."""
        self._rollouts = dict(tensors)


def find_complete_episodes(done: BoolArray, first: BoolArray, valid: BoolArray) -> tuple[IntArray, BoolArray]:
    """Return the episode number of each step [T, N], and whether that episode is complete.

    A complete episode has its first and its last step in the data, and only valid steps in between.
    """
    episode_ids = number_episodes(done)
    count = episode_ids.max() + 1
    has_start, has_end, has_invalid = (np.isin(range(count), episode_ids[mask]) for mask in (first, done, ~valid))
    return episode_ids, (has_start & has_end & ~has_invalid)[episode_ids]
