"""`embodied-rm bench fusion`."""

from __future__ import annotations

from embodied_rm.experiments.fusion_benchmark import COMMAND

__all__ = ["COMMAND"]
