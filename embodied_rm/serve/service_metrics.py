"""Prometheus metrics and the JSON log of the service."""

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
    """Metrics of one service. Accepted requests equal finished ones plus those in progress."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter(
            "embodied_rm_requests",
            "Finished requests by endpoint and status",
            ["endpoint", "status"],
            **options,
        )
        self._accepted_requests = Counter(
            "embodied_rm_accepted_requests", "Accepted requests by endpoint", ["endpoint"], **options
        )
        self._request_duration = Histogram(
            "embodied_rm_request_duration_seconds",
            "Seconds from the first byte of a request to its response",
            buckets=DURATION_BUCKETS_S,
            **options,
        )
        self._batch_size = Histogram(
            "embodied_rm_batch_size", "Environments per batch", buckets=BATCH_SIZE_BUCKETS, **options
        )
        self._inference_duration = Histogram(
            "embodied_rm_inference_duration_seconds", "Inference time of a batch", buckets=DURATION_BUCKETS_S, **options
        )
        self._invalid_frames = Counter("embodied_rm_invalid_frames", "Frames that the model could not score", **options)
        self._ood_frames = Counter("embodied_rm_ood_frames", "Frames outside of the training distribution", **options)
        self._non_finite_outputs = Counter(
            "embodied_rm_non_finite_outputs", "Predictions that were not finite, and not sent", **options
        )
        self._model_errors = Counter(
            "embodied_rm_model_errors", "Batches in which the model raised an exception", **options
        )

    def request_totals(self) -> tuple[int, int]:
        """Return the numbers of accepted and of finished requests."""
        return counter_total(self._accepted_requests), counter_total(self._requests)

    def add_gauge(self, name: str, description: str, read_value: Callable[[], float]) -> None:
        """Add a gauge that is read when metrics are collected."""
        Gauge(f"embodied_rm_{name}", description, registry=self.registry).set_function(read_value)

    def record_accepted(self, endpoint: str) -> None:
        """Count a request on arrival."""
        self._accepted_requests.labels(endpoint).inc()

    def record_response(self, endpoint: str, duration_s: float, status: str) -> None:
        """Count a finished request, answered or rejected."""
        self._requests.labels(endpoint, status).inc()
        self._request_duration.observe(duration_s)

    def record_batch(self, num_rows: int, duration_s: float) -> None:
        """Count a batch."""
        self._batch_size.observe(num_rows)
        self._inference_duration.observe(duration_s)

    def record_frames(self, output: RewardOutput) -> None:
        """Count invalid and out-of-distribution frames of a prediction."""
        self._invalid_frames.inc(int((~output.valid).sum()))
        self._ood_frames.inc(int((output.ood > 1).sum()))

    def record_non_finite(self, num_rows: int) -> None:
        """Count and log rows with non-finite outputs."""
        self._non_finite_outputs.inc(num_rows)
        log_event("non_finite", num_rows=num_rows)

    def record_model_error(self, error: Exception) -> None:
        """Count and log a failed batch."""
        self._model_errors.inc()
        LOGGER.error("the model failed", exc_info=error)

    def to_prometheus_text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def counter_total(counter: Counter) -> int:
    """Return the sum over all labels."""
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


def log_event(event: str, **fields: Any) -> None:
    """Log one event as a line of JSON."""
    LOGGER.info(json.dumps({"time": round(time.time(), 3), "event": event, **fields}))


def add_log_stream(stream: TextIO) -> None:
    """Write the log to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
