"""Rows of numbers over time, written so that other people's tools draw them: TensorBoard, Weights & Biases."""

from embodied_rm.logs.log import Log, numbers, open_log

__all__ = ["Log", "numbers", "open_log"]
