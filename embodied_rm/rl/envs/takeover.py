"""Take-over by a helper in episodes without progress, as a person at a robot does.

Sources: HIL-SERL (arXiv 2410.21845) for what is learned from it: transitions with the executed action, in the replay
buffer and among the recorded ones. VLAC and TwinRL for when: where the progress stalls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, strip_prefix
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.types import Array, BoolArray, IntArray

HelperName = Literal["expert", "person"]
STATE_FIELDS = ("highest_potential", "stalled_steps", "helped_steps", "acts", "has_helped")


@dataclass(frozen=True, kw_only=True)
class TakeoverConfig:
    """When a helper acts in place of the policy, and who it is."""

    stall_steps: int = 0
    """Steps without a gain of potential after which the helper acts; 0: never."""
    min_gain: float = 0.05  # gain over the potential at the last gain of the episode that counts as one
    max_steps: int = 0  # steps after which the policy acts again; 0: the helper acts until the episode ends
    helper: HelperName = "expert"  # who acts in the simulated tasks
    port: int = 0  # of the page of `helper=person`; 0: any free port

    def __post_init__(self) -> None:
        check_minimum(self, 0, "stall_steps", "max_steps", prefix="takeover.")
        if not self.min_gain > 0:
            raise UserError(f"takeover.min_gain must be > 0, got {self.min_gain}")
        if self.port and self.helper != "person":
            raise UserError(f"takeover.port={self.port} needs takeover.helper=person: only a person has a page")
        if self.helper == "person" and not self.stall_steps:
            raise UserError("takeover.helper=person needs takeover.stall_steps, after which you act")


class Helper(Protocol):
    """A person or a scripted expert that acts in place of the policy."""

    def reset(self, rows: IntArray) -> None:
        """Begin to act in these environments, from their current states."""
        ...

    def act(self, rows: IntArray) -> Array:
        """Return the actions [n, A] of these environments in their current states."""
        ...

    def has_finished(self, rows: IntArray) -> BoolArray:
        """Return whether the policy acts again [n], after the last actions in these environments."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that later actions depend on but the environments."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_dict` returned."""
        ...


class Takeover:
    """Counts the steps without progress of each episode, and replaces the actions where there are too many."""

    def __init__(self, config: TakeoverConfig, helper: Helper, num_envs: int) -> None:
        """Begin with no episode; `begin` opens them."""
        self._config, self._helper = config, helper
        self.highest_potential = np.zeros(num_envs)
        """[N]: the potential at the last gain of the episode, or at its start."""
        self.stalled_steps, self.helped_steps = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self.acts: BoolArray = np.zeros(num_envs, bool)
        """[N]: whether the helper acts in the row."""
        self.has_helped: BoolArray = np.zeros(num_envs, bool)
        """[N]: whether the helper has acted in the row's episode."""

    def begin(self, rows: IntArray, potential: Array) -> None:
        """Begin the episodes of rows, whose first states have these potentials [n]."""
        self.highest_potential[rows] = potential
        self.stalled_steps[rows] = self.helped_steps[rows] = 0
        self.acts[rows] = self.has_helped[rows] = False

    def replace(self, actions: Array, low: Array, high: Array) -> Array:
        """Return the actions [N, A], with those of the helper, within their bounds, where it acts."""
        started = np.flatnonzero(~self.acts & (self.stalled_steps >= self._config.stall_steps))
        if len(started):
            self._helper.reset(started)
        self.acts[started] = self.has_helped[started] = True
        self.helped_steps[started] = 0
        rows = np.flatnonzero(self.acts)
        executed = np.array(actions, np.float32)
        if len(rows):
            executed[rows] = np.clip(self._helper.act(rows), low, high)
        return executed

    def update(self, potential: Array) -> None:
        """Count a step after which the states have these potentials [N]."""
        gains = potential >= self.highest_potential + self._config.min_gain
        self.highest_potential = np.where(gains, potential, self.highest_potential)
        self.stalled_steps = np.where(gains | self.acts, 0, self.stalled_steps + 1)
        self.helped_steps += self.acts
        if self._config.max_steps:
            self.acts &= self.helped_steps < self._config.max_steps
        if len(rows := np.flatnonzero(self.acts)):
            self.acts[rows] = ~self._helper.has_finished(rows)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that later take-overs depend on."""
        own = {name: torch.from_numpy(getattr(self, name).copy()) for name in STATE_FIELDS}
        return {**own, **add_prefix("helper", self._helper.state_dict())}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_dict` returned."""
        for name in STATE_FIELDS:
            setattr(self, name, state[name].numpy().copy())
        self._helper.load_state_dict(strip_prefix("helper", state))
