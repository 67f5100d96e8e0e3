"""Remaining time of a job of many items, some of which are only read from a cache."""

from collections import deque

MAX_DURATIONS = 1000  # number of the latest items whose durations are kept
MIN_DURATION_FRACTION = 0.01
"""Items shorter than this fraction of the longest one (or of the current one) count as cached and are ignored."""


class EtaEstimator:
    """Durations of the items of a job; all times are seconds of the same clock."""

    def __init__(self, now_s: float) -> None:
        self._item_start_s = now_s
        self._durations_s: deque[float] = deque(maxlen=MAX_DURATIONS)
        self.num_done = 0

    def finish_item(self, now_s: float) -> None:
        """Record the end of an item."""
        self._durations_s.append(now_s - self._item_start_s)
        self._item_start_s = now_s
        self.num_done += 1

    def remaining_s(self, total: float | None, now_s: float) -> float | None:
        """Return the seconds until `total` items are done, by the mean duration of uncached items; None if unknown."""
        longest = max(now_s - self._item_start_s, *self._durations_s, 0.0)
        real_durations = [duration for duration in self._durations_s if duration >= MIN_DURATION_FRACTION * longest]
        if total is None or not real_durations:
            return None
        return max(total - self.num_done, 0) * sum(real_durations) / len(real_durations)
