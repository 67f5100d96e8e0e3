"""`embodied-rm clone`."""

from __future__ import annotations

from embodied_rm.tabletop.clone_policy import COMMAND

__all__ = ["COMMAND"]
