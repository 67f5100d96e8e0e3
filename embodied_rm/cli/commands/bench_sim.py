"""`embodied-rm bench sim`."""

from __future__ import annotations

from embodied_rm.experiments.simulation_benchmark import COMMAND

__all__ = ["COMMAND"]
