"""`embodied-rm bench renderers`."""

from __future__ import annotations

from embodied_rm.experiments.renderer_benchmark import COMMAND

__all__ = ["COMMAND"]
