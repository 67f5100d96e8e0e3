"""The scripted expert of a task as the helper that takes over in its environments."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from embodied_rm.types import Array, BoolArray, IntArray
from embodied_sim.vec_env import TabletopVecEnv
from embodied_sim.waypoints import PlanFollower


class ExpertHelper:
    """Follows the task's expert plan at full speed, from its first waypoint on, wherever it takes over."""

    def __init__(self, envs: TabletopVecEnv) -> None:
        """Act in these environments, which read their own state."""
        self._envs, self._plan = envs, envs.task.expert_plan()
        self._follower = PlanFollower(envs.num_envs)
        self.reset(np.arange(envs.num_envs))

    def reset(self, rows: IntArray) -> None:
        """Begin the plan in these environments."""
        self._follower.assign(rows, [self._plan] * len(rows), np.ones(len(rows)), self._envs.state)

    def act(self, rows: IntArray) -> Array:
        """Return the actions [n, 4] of these environments in their current states."""
        return self._follower.act(self._envs.state)[rows].astype(np.float32)

    def has_finished(self, rows: IntArray) -> BoolArray:
        """Return False: the expert goes on to the end."""
        return np.zeros(len(rows), bool)

    def state_dict(self) -> dict[str, Tensor]:
        """Return where the plans are."""
        return {name: torch.from_numpy(array) for name, array in self._follower.snapshot().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue the plans of `state_dict`."""
        self._follower.restore({name: tensor.numpy() for name, tensor in state.items()})
