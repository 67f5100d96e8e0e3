"""`embodied-rm compare`."""

from __future__ import annotations

from embodied_rm.experiments.compare_rules import COMMAND

__all__ = ["COMMAND"]
