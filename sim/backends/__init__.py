"""Physics engines behind one interface. Nothing outside this package may know which one runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mujoco

from sim.backends.base import Backend
from sim.backends.batch import BatchBackend
from sim.errors import lookup

BACKENDS: Mapping[str, Callable[[mujoco.MjModel, int, int], Backend]] = {"batch": BatchBackend}


def make_backend(name: str, model: mujoco.MjModel, num_worlds: int, threads: int = 0) -> Backend:
    """`num_worlds` worlds of `model` on the engine called `name`; `threads` 0 means one a processor.

    Raises `SimError` for an unknown engine.
    """
    return lookup(BACKENDS, name, "backend")(model, num_worlds, threads)


__all__ = ["BACKENDS", "Backend", "make_backend"]
