"""Actions that take effect late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_sim.control import FloatArray


class ActionDelay:
    """Holds back the actions of N worlds, each by its own number of control steps; at first nothing is done."""

    def __init__(self, num_envs: int, action_dim: int, max_delay: int) -> None:
        self._history = np.zeros((max_delay + 1, num_envs, action_dim))
        self.delay: npt.NDArray[np.int64] = np.zeros(num_envs, np.int64)
        """[N]: control steps between an action and its effect, at most `longest`."""

    def reset(self, rows: npt.NDArray[np.int64]) -> None:
        """Forget the actions of `rows`: their episodes begin. An open hand stays open."""
        self._history[:, rows] = 0.0
        self._history[:, rows, -1] = -1.0

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Recent actions and delays, copies."""
        return {"recent": self._history.copy(), "delay": self.delay.copy()}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from what `snapshot` gave."""
        self._history[...], self.delay[...] = snapshot["recent"], snapshot["delay"]

    def push(self, action: FloatArray) -> FloatArray:
        """Take the newest action [N, A] of every world; the one [N, A] that takes effect now."""
        self._history = np.roll(self._history, 1, axis=0)
        self._history[0] = action
        return self._history[self.delay, np.arange(len(self.delay))]
