"""`embodied-rm evaluate`."""

from __future__ import annotations

from embodied_rm.experiments.evaluate_model import COMMAND

__all__ = ["COMMAND"]
