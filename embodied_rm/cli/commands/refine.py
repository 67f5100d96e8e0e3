"""`embodied-rm refine`."""

from __future__ import annotations

from embodied_rm.tabletop.refine_policy import COMMAND

__all__ = ["COMMAND"]
