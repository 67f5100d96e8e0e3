"""What a service has done, as Prometheus reads it, and what it tells in its log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from embodied_rm.types import RewardOutput

BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OK_STATUS = "ok"
LOGGER = logging.getLogger("embodied_rm.serve")


class ServiceMetrics:
    """Counts of one service. `accepted` is always the sum of all `answered`, and of what is under way."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter(
            "embodied_rm_requests",
            "Requests by what was asked and what became of it",
            ["endpoint", "status"],
            **options,
        )
        self._accepted_requests = Counter(
            "embodied_rm_accepted_requests", "Requests that were let in, by what was asked", ["endpoint"], **options
        )
        self._request_duration = Histogram(
            "embodied_rm_request_duration_seconds",
            "From the first byte of a request to its answer",
            buckets=DURATION_BUCKETS_S,
            **options,
        )
        self._batch_size = Histogram(
            "embodied_rm_batch_size", "Environments judged side by side", buckets=BATCH_SIZE_BUCKETS, **options
        )
        self._inference_duration = Histogram(
            "embodied_rm_inference_duration_seconds", "Time of a batch", buckets=DURATION_BUCKETS_S, **options
        )
        self._invalid_frames = Counter("embodied_rm_invalid_frames", "Frames that the model could not judge", **options)
        self._ood_frames = Counter("embodied_rm_ood_frames", "Frames out of the model's distribution", **options)
        self._non_finite_outputs = Counter(
            "embodied_rm_non_finite_outputs", "Predictions that were no number, and not sent", **options
        )
        self._model_errors = Counter("embodied_rm_model_errors", "Batches at which the model failed", **options)

    def request_totals(self) -> tuple[int, int]:
        """How many requests were let in so far, and how many answered or refused."""
        return counter_total(self._accepted_requests), counter_total(self._requests)

    def add_gauge(self, name: str, description: str, read_value: Callable[[], float]) -> None:
        """Tell a number that is read when somebody asks."""
        Gauge(f"embodied_rm_{name}", description, registry=self.registry).set_function(read_value)

    def record_accepted(self, endpoint: str) -> None:
        """A request was let in."""
        self._accepted_requests.labels(endpoint).inc()

    def record_response(self, endpoint: str, duration_s: float, status: str) -> None:
        """It was answered, or refused."""
        self._requests.labels(endpoint, status).inc()
        self._request_duration.observe(duration_s)

    def record_batch(self, num_rows: int, duration_s: float) -> None:
        """A batch was judged."""
        self._batch_size.observe(num_rows)
        self._inference_duration.observe(duration_s)

    def record_frames(self, output: RewardOutput) -> None:
        """Frames were judged."""
        self._invalid_frames.inc(int((~output.valid).sum()))
        self._ood_frames.inc(int((output.ood > 1).sum()))

    def record_non_finite(self, num_rows: int) -> None:
        """The model said what is no number."""
        self._non_finite_outputs.inc(num_rows)
        log_event("non_finite", num_rows=num_rows)

    def record_model_error(self, error: Exception) -> None:
        """The model failed, which is nobody's mistake but ours."""
        self._model_errors.inc()
        LOGGER.error("the model failed", exc_info=error)

    def to_prometheus_text(self) -> bytes:
        """For Prometheus."""
        return generate_latest(self.registry)


def counter_total(counter: Counter) -> int:
    """Of all its labels."""
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


def log_event(event: str, **fields: Any) -> None:
    """One line of the log, which is JSON."""
    LOGGER.info(json.dumps({"time": round(time.time(), 3), "event": event, **fields}))


def add_log_stream(stream: TextIO) -> None:
    """Have the log written, a line an event."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
