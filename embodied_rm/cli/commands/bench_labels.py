"""`embodied-rm bench labels`."""

from __future__ import annotations

from embodied_rm.experiments.label_benchmark import COMMAND

__all__ = ["COMMAND"]
