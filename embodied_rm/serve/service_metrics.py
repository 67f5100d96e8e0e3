"""Prometheus metrics and the JSON log of the service."""

import json
import logging
from collections.abc import Callable
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OK_STATUS = "ok"
LOGGER = logging.getLogger("embodied_rm.serve")
FIELDS_ATTRIBUTE = "event_fields"  # attribute of log records: the fields of an event


class ServiceMetrics:
    """Metrics of one service. Accepted requests equal finished ones plus those in progress."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry, "namespace": "embodied_rm"}
        durations = {**options, "buckets": DURATION_BUCKETS_S}
        labels = ["endpoint", "status"]
        self.requests = Counter("requests", "Finished requests by endpoint and status", labels, **options)
        self.accepted_requests = Counter("accepted_requests", "Accepted requests by endpoint", ["endpoint"], **options)
        self.request_duration = Histogram(
            "request_duration_seconds", "Seconds from the first byte of a request to its response", **durations
        )
        self.batch_size = Histogram("batch_size", "Environments per batch", buckets=BATCH_SIZE_BUCKETS, **options)
        self.inference_duration = Histogram("inference_duration_seconds", "Inference time of a batch", **durations)
        self.invalid_frames = Counter("invalid_frames", "Frames that the model could not score", **options)
        self.ood_frames = Counter("ood_frames", "Frames outside of the training distribution", **options)
        self.non_finite_outputs = Counter(
            "non_finite_outputs", "Predictions that were not finite, and not sent", **options
        )
        self.model_errors = Counter("model_errors", "Batches in which the model raised an exception", **options)

    def request_totals(self) -> tuple[int, int]:
        """Return the numbers of accepted and of finished requests."""
        return counter_total(self.accepted_requests), counter_total(self.requests)

    def add_gauge(self, name: str, description: str, read_value: Callable[[], float]) -> None:
        """Add a gauge that is read when metrics are collected."""
        Gauge(name, description, registry=self.registry, namespace="embodied_rm").set_function(read_value)


def counter_total(counter: Counter) -> int:
    """Return the sum over all labels."""
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


def log_event(event: str, **fields: Any) -> None:
    """Log one event."""
    LOGGER.info(event, extra={FIELDS_ATTRIBUTE: fields})


class JsonFormatter(logging.Formatter):
    """Writes every record, those of libraries too, as one line of JSON without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, FIELDS_ATTRIBUTE, None)
        if fields is None:
            fields = {"level": record.levelname.lower(), "logger": record.name}
        if record.exc_info:
            fields |= {"traceback": self.formatException(record.exc_info)}
        return json.dumps({"time": round(record.created, 3), "event": record.getMessage(), **fields})


def add_log_stream(stream: TextIO) -> None:
    """Write the log of this process to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    LOGGER.setLevel(logging.INFO)
