"""Physics engines behind one interface. Nothing outside this package may know which one runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mujoco

from sim.backends.base import Backend
from sim.backends.batch import BatchBackend
from sim.errors import SimError, lookup


def make_backend(name: str, model: mujoco.MjModel, num_worlds: int, threads: int = 0, device: str = "cpu") -> Backend:
    """`num_worlds` worlds of `model` on the engine called `name`.

    `threads` is for "batch" (0: one a processor), `device` for "warp": "cpu" or "cuda". Raises `SimError` for an
    unknown engine, and for one that is not installed or cannot run on that device or that model.
    """
    return lookup(BACKENDS, name, "backend")(model, num_worlds, threads, device)


def _batch(model: mujoco.MjModel, num_worlds: int, threads: int, device: str) -> Backend:
    if device != "cpu":
        raise SimError(f"the backend 'batch' runs on the device 'cpu', got {device!r}: use the backend 'warp'")
    return BatchBackend(model, num_worlds, threads)


def _warp(model: mujoco.MjModel, num_worlds: int, threads: int, device: str) -> Backend:
    try:
        from sim.backends.warp import WarpBackend  # heavy and optional
    except ModuleNotFoundError as error:
        raise SimError("the backend 'warp' needs mujoco_warp: pip install 'embodied-rm[warp]'") from error
    return WarpBackend(model, num_worlds, device)


BACKENDS: Mapping[str, Callable[[mujoco.MjModel, int, int, str], Backend]] = {"batch": _batch, "warp": _warp}


__all__ = ["BACKENDS", "Backend", "make_backend"]
