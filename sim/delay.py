"""Actions that take effect late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.control import FloatArray


class DelayLine:
    """Holds back the actions of N worlds, each by its own number of control steps; at first nothing is done."""

    def __init__(self, num_worlds: int, size: int, longest: int) -> None:
        self._recent = np.zeros((longest + 1, num_worlds, size))
        self.delay: npt.NDArray[np.int64] = np.zeros(num_worlds, np.int64)
        """[N]: control steps between an action and its effect, at most `longest`."""

    def clear(self, rows: npt.NDArray[np.int64]) -> None:
        """Forget the actions of `rows`: their episodes begin. An open hand stays open."""
        self._recent[:, rows] = 0.0
        self._recent[:, rows, -1] = -1.0

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Recent actions and delays, copies."""
        return {"recent": self._recent.copy(), "delay": self.delay.copy()}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from what `snapshot` gave."""
        self._recent[...], self.delay[...] = snapshot["recent"], snapshot["delay"]

    def pass_on(self, action: FloatArray) -> FloatArray:
        """Take the newest action [N, A] of every world; the one [N, A] that takes effect now."""
        self._recent = np.roll(self._recent, 1, axis=0)
        self._recent[0] = action
        return self._recent[self.delay, np.arange(len(self.delay))]
