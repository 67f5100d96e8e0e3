"""What a service has done, as Prometheus reads it, and what it tells in its log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from embodied_rm.types import Progress

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OK = "ok"
LOG = logging.getLogger("embodied_rm.serve")


class Meter:
    """Counts of one service. `accepted` is always the sum of all `answered`, and of what is under way."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        kept: dict[str, Any] = {"registry": self.registry}
        self._answered = Counter(
            "embodied_rm_requests", "Requests by what was asked and what became of it", ["asked", "outcome"], **kept
        )
        self._accepted = Counter(
            "embodied_rm_accepted", "Requests that were let in, by what was asked", ["asked"], **kept
        )
        self._seconds = Histogram(
            "embodied_rm_request_seconds", "From the first byte of a request to its answer", buckets=SECONDS, **kept
        )
        self._rows = Histogram("embodied_rm_batch_rows", "Environments judged side by side", buckets=ROWS, **kept)
        self._judging = Histogram("embodied_rm_batch_seconds", "Time of a batch", buckets=SECONDS, **kept)
        self._invalid = Counter("embodied_rm_unscored_frames", "Frames that the model could not judge", **kept)
        self._unusual = Counter("embodied_rm_unusual_frames", "Frames out of the model's distribution", **kept)
        self._broken = Counter("embodied_rm_non_finite_rewards", "Judgements that were no number, and not sent", **kept)
        self._faults = Counter("embodied_rm_model_faults", "Batches at which the model failed", **kept)

    def totals(self) -> tuple[int, int]:
        """How many requests were let in so far, and how many answered or refused."""
        return total(self._accepted), total(self._answered)

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Tell a number that is read when somebody asks."""
        Gauge(f"embodied_rm_{name}", what, registry=self.registry).set_function(value)

    def accept(self, asked: str) -> None:
        """A request was let in."""
        self._accepted.labels(asked).inc()

    def answer(self, asked: str, seconds: float, outcome: str) -> None:
        """It was answered, or refused."""
        self._answered.labels(asked, outcome).inc()
        self._seconds.observe(seconds)

    def batch(self, rows: int, seconds: float) -> None:
        """A batch was judged."""
        self._rows.observe(rows)
        self._judging.observe(seconds)

    def judged(self, progress: Progress) -> None:
        """Frames were judged."""
        self._invalid.inc(int((~progress.valid).sum()))
        self._unusual.inc(int((progress.ood > 1).sum()))

    def non_finite(self, rows: int) -> None:
        """The model said what is no number."""
        self._broken.inc(rows)
        tell("non_finite", rows=rows)

    def fault(self, fault: Exception) -> None:
        """The model failed, which is nobody's mistake but ours."""
        self._faults.inc()
        LOG.error("the model failed", exc_info=fault)

    def text(self) -> bytes:
        """For Prometheus."""
        return generate_latest(self.registry)


def total(counter: Counter) -> int:
    """Of all its labels."""
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


def tell(event: str, **facts: Any) -> None:
    """One line of the log, which is JSON."""
    LOG.info(json.dumps({"time": round(time.time(), 3), "event": event, **facts}))


def log_to(stream: TextIO) -> None:
    """Have the log written, a line an event."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
