"""Action latency."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_sim.control import FloatArray


class ActionDelay:
    """Delay the actions of N environments, each by its own number of control steps."""

    def __init__(self, num_envs: int, action_dim: int, max_delay: int) -> None:
        self._history = np.zeros((max_delay + 1, num_envs, action_dim))
        self.delay: npt.NDArray[np.int64] = np.zeros(num_envs, np.int64)
        """[N]: control steps between an action and its effect, at most `max_delay`."""

    def reset(self, rows: npt.NDArray[np.int64]) -> None:
        """Clear the history of `rows` at the start of their episodes: no motion, gripper open."""
        self._history[:, rows] = 0.0
        self._history[:, rows, -1] = -1.0

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the action history and the delays."""
        return {"history": self._history.copy(), "delay": self.delay.copy()}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore a `snapshot`."""
        self._history[...], self.delay[...] = snapshot["history"], snapshot["delay"]

    def push(self, action: FloatArray) -> FloatArray:
        """Add the newest actions [N, A] and return those [N, A] that take effect now."""
        self._history = np.roll(self._history, 1, axis=0)
        self._history[0] = action
        return self._history[self.delay, np.arange(len(self.delay))]
