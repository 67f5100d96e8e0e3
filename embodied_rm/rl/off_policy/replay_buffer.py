"""Replay buffer of an off-policy learner: the last transitions of the environments, in a ring."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embodied_rm.errors import CheckpointError
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.offline.transitions import OfflineTransitions

COLUMNS = ("observation", "action", "reward", "next_observation", "terminated", "potential")


def rollout_transitions(rollout: RolloutBuffer) -> OfflineTransitions:
    """Return the valid transitions of a rollout, whose critic has the observations of the policy, in order of time."""
    valid = torch.from_numpy(rollout.valid.reshape(-1))
    columns = {
        "observation": rollout.critic_observation,
        "action": rollout.action,
        "reward": rollout.reward,
        "next_observation": rollout.next_critic_observation,
        "terminated": rollout.terminated,
        "potential": rollout.potential,
    }
    return OfflineTransitions(
        **{name: torch.from_numpy(column.reshape(-1, *column.shape[2:]))[valid] for name, column in columns.items()},
        episode_index=torch.zeros(int(valid.sum()), dtype=torch.int64),  # unknown, and not used by a learner
    )


def helped_transitions(rollout: RolloutBuffer) -> OfflineTransitions:
    """Return those of `rollout_transitions` in which a helper acted."""
    return rollout_transitions(rollout).take(torch.from_numpy(rollout.helped[rollout.valid]))


class ReplayBuffer:
    """Up to `capacity` transitions; the oldest ones are replaced."""

    def __init__(self, capacity: int, obs_dim: int, action_dim: int) -> None:
        self._capacity, self._num_added = capacity, 0
        self._columns = {
            "observation": torch.zeros(capacity, obs_dim),
            "action": torch.zeros(capacity, action_dim),
            "reward": torch.zeros(capacity),
            "next_observation": torch.zeros(capacity, obs_dim),
            "terminated": torch.zeros(capacity, dtype=torch.bool),
            "potential": torch.zeros(capacity),
        }

    def __len__(self) -> int:
        return min(self._num_added, self._capacity)

    def add(self, rollout: RolloutBuffer) -> None:
        """Add the transitions of a rollout, in order of time."""
        added = rollout_transitions(rollout)
        rows = (self._num_added + torch.arange(len(added))) % self._capacity
        for name, column in self._columns.items():
            # With more transitions than room, the last ones stay.
            column[rows[-self._capacity :]] = getattr(added, name)[-self._capacity :]
        self._num_added += len(added)

    def sample(self, count: int, generator: torch.Generator) -> OfflineTransitions:
        """Sample transitions uniformly, with replacement."""
        rows = torch.randint(len(self), (count,), generator=generator)
        episode_index = torch.zeros(count, dtype=torch.int64)  # unknown, and not used by a learner
        return OfflineTransitions(
            **{name: column[rows] for name, column in self._columns.items()}, episode_index=episode_index
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return the transitions, and how many were ever added."""
        filled = {name: column[: len(self)] for name, column in self._columns.items()}
        return {**filled, "num_added": torch.tensor(self._num_added)}

    def load_state_dict(self, tensors: Mapping[str, Tensor], source: object) -> None:
        """Restore the state of `state_dict`; raise `CheckpointError` with the name of `source` if it does not fit."""
        if set(tensors) != {*COLUMNS, "num_added"}:
            raise CheckpointError(f"{source}: the stored replay buffer has {', '.join(sorted(tensors))}")
        self._num_added = int(tensors["num_added"])
        for name, column in self._columns.items():
            stored = tensors[name]
            if stored.shape != (len(self), *column.shape[1:]):
                raise CheckpointError(f"{source}: the stored replay buffer does not fit this one: {name}")
            column[: len(self)] = stored
