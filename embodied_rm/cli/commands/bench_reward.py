"""`embodied-rm bench reward`."""

from __future__ import annotations

from embodied_rm.experiments.rl_iteration_benchmark import COMMAND

__all__ = ["COMMAND"]
