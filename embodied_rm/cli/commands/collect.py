"""`embodied-rm collect`."""

from __future__ import annotations

from embodied_rm.tabletop.collect_episodes import COMMAND

__all__ = ["COMMAND"]
