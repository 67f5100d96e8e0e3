"""`embodied-rm play`."""

from __future__ import annotations

from embodied_rm.tabletop.play_episodes import COMMAND

__all__ = ["COMMAND"]
