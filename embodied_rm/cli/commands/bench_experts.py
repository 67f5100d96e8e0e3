"""`embodied-rm bench experts`."""

from __future__ import annotations

from embodied_rm.experiments.expert_benchmark import COMMAND

__all__ = ["COMMAND"]
