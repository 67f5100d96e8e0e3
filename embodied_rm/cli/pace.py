"""How long a job of many items will take, where some of them are only looked up."""

from __future__ import annotations

from collections import deque

RECENT = 1000
"""Items that are remembered."""
TRIFLE = 0.01
"""Items shorter than this share of the longest one, or of the one under way, were not worked on: they say nothing."""


class Pace:
    """Durations of the items of a job; times are seconds of one clock."""

    def __init__(self, now: float) -> None:
        self._begun = now
        self._lasted: deque[float] = deque(maxlen=RECENT)
        self.done = 0

    def step(self, now: float) -> None:
        """An item is done."""
        self._lasted.append(now - self._begun)
        self._begun = now
        self.done += 1

    def left(self, total: float | None, now: float) -> float | None:
        """Seconds until `total` items are done, from the mean of those that were worked on; None: nobody knows."""
        longest = max(now - self._begun, *self._lasted, 0.0)
        worked = [lasted for lasted in self._lasted if lasted >= TRIFLE * longest]
        if total is None or not worked:
            return None
        return max(total - self.done, 0) * sum(worked) / len(worked)
