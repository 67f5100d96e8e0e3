"""`embodied-rm build-checkpoint`."""

from __future__ import annotations

from embodied_rm.experiments.release_checkpoint import COMMAND

__all__ = ["COMMAND"]
