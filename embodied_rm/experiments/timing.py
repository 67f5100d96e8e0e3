"""Interleaved timings of several calls, and the throughput that follows from them."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from embodied_rm.run_folder import Reporter

Seconds = Mapping[str, Sequence[float]]  # call -> seconds per round


def time_in_turn(
    calls: Mapping[str, Callable[[], object]], rounds: int, warm_up_rounds: int, reporter: Reporter, description: str
) -> Seconds:
    """Time the calls, interleaved so that other load affects all of them alike."""
    for call in list(calls.values()) * warm_up_rounds:
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for name in reporter.track(list(calls) * rounds, description):
        start_s = time.perf_counter()
        calls[name]()
        seconds[name].append(time.perf_counter() - start_s)
    return seconds


def throughputs(seconds: Seconds, num_frames: int) -> dict[str, float]:
    """Return the frames per second of each call by its median time."""
    return {f"{name}_per_s": num_frames / median(values) for name, values in seconds.items()}


def median_ratio(seconds: Seconds, slow: str, fast: str) -> float:
    """Return the median ratio of the times of two calls within a round."""
    return median(s / f for s, f in zip(seconds[slow], seconds[fast], strict=True))
