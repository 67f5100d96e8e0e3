"""`embodied-rm demo`."""

from __future__ import annotations

from embodied_rm.experiments.demo_loop import COMMAND

__all__ = ["COMMAND"]
