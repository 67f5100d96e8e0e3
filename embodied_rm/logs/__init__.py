"""Rows of numbers over time, written so that other people's tools draw them: TensorBoard, Weights & Biases."""

from embodied_rm.logs.logger import MetricsLogger, flatten_metrics, open_logger

__all__ = ["MetricsLogger", "flatten_metrics", "open_logger"]
