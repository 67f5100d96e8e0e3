"""`embodied-rm bench score`."""

from __future__ import annotations

from embodied_rm.experiments.scoring_benchmark import COMMAND

__all__ = ["COMMAND"]
