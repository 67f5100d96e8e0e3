"""Logging of metrics to TensorBoard and Weights & Biases."""

from embodied_rm.logs.logger import MetricsLogger, flatten_metrics, open_logger

__all__ = ["MetricsLogger", "flatten_metrics", "open_logger"]
