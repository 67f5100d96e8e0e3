"""Physics engines behind one interface. Code outside this package does not depend on the engine."""

from collections.abc import Callable, Mapping

import mujoco

from embodied_sim.backends.backend import PhysicsBackend
from embodied_sim.backends.mujoco_batch import BatchBackend
from embodied_sim.sim_errors import SimError, lookup


def make_backend(
    name: str, model: mujoco.MjModel, num_worlds: int, threads: int = 0, device: str = "cpu", max_contacts: int = 0
) -> PhysicsBackend:
    """Create the physics backend "batch" or "warp" with `num_worlds` worlds of the compiled scene.

    `threads` are CPU threads of "batch"; 0: one per processor. `device` is that of "warp", "cpu" or "cuda", and
    `max_contacts` the contacts per world for which it allocates memory; 0: chosen from the model. Raises `SimError` if
    the engine is unknown or not installed, or cannot run on that device or model.
    """
    return lookup(BACKENDS, name, "backend")(model, num_worlds, threads, device, max_contacts)


def _batch(model: mujoco.MjModel, num_worlds: int, threads: int, device: str, _: int) -> PhysicsBackend:
    if device != "cpu":
        raise SimError(f"the backend 'batch' runs on the device 'cpu', got {device!r}: use the backend 'warp'")
    return BatchBackend(model, num_worlds, threads)


def _warp(model: mujoco.MjModel, num_worlds: int, threads: int, device: str, max_contacts: int) -> PhysicsBackend:
    try:
        from embodied_sim.backends.contact_limits import ContactLimits  # heavy and optional, likewise the rest
        from embodied_sim.backends.mujoco_warp_backend import WarpBackend
    except ModuleNotFoundError as error:
        raise SimError("the backend 'warp' needs mujoco_warp: pip install 'embodied-rm[warp]'") from error
    return WarpBackend(model, num_worlds, device, ContactLimits.from_model(model, max_contacts))


BACKENDS: Mapping[str, Callable[[mujoco.MjModel, int, int, str, int], PhysicsBackend]] = {
    "batch": _batch,
    "warp": _warp,
}


__all__ = ["BACKENDS", "PhysicsBackend", "make_backend"]
