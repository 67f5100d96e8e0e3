"""`embodied-rm bench cloning`."""

from __future__ import annotations

from embodied_rm.experiments.cloning_benchmark import COMMAND

__all__ = ["COMMAND"]
