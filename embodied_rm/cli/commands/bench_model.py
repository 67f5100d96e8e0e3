"""`embodied-rm bench model`."""

from __future__ import annotations

from embodied_rm.experiments.inference_benchmark import COMMAND

__all__ = ["COMMAND"]
