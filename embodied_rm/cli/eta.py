"""How long a job of many items will take, where some of them are only looked up."""

from __future__ import annotations

from collections import deque

MAX_DURATIONS = 1000
"""Items that are remembered."""
MIN_DURATION_FRACTION = 0.01
"""Items shorter than this share of the longest one, or of the one under way, were not worked on: they say nothing."""


class EtaEstimator:
    """Durations of the items of a job; times are seconds of one clock."""

    def __init__(self, now_s: float) -> None:
        self._item_start_s = now_s
        self._durations_s: deque[float] = deque(maxlen=MAX_DURATIONS)
        self.num_done = 0

    def finish_item(self, now_s: float) -> None:
        """An item is done."""
        self._durations_s.append(now_s - self._item_start_s)
        self._item_start_s = now_s
        self.num_done += 1

    def remaining_s(self, total: float | None, now_s: float) -> float | None:
        """Seconds until `total` items are done, from the mean of those that were worked on; None: nobody knows."""
        longest = max(now_s - self._item_start_s, *self._durations_s, 0.0)
        real_durations = [duration for duration in self._durations_s if duration >= MIN_DURATION_FRACTION * longest]
        if total is None or not real_durations:
            return None
        return max(total - self.num_done, 0) * sum(real_durations) / len(real_durations)
