"""Speed of `embodied_sim.render` on the tabletop scene, compared with MuJoCo's own renderer.

    python benchmarks/render_speed.py          (MUJOCO_GL=osmesa for the other OpenGL library)

Prints one JSON object: views per second (the best of several interleaved rounds) and the speedups.
"""

from __future__ import annotations

import os

# mujoco.Renderer reads the OpenGL library from the environment when mujoco is imported.
os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("LP_NUM_THREADS", "0")

import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import mujoco
import numpy as np

from embodied_sim.backends import PhysicsBackend, make_backend
from embodied_sim.registry import make_task
from embodied_sim.render import make_renderer
from embodied_sim.render.gl_renderer import low_resolution_model
from embodied_sim.render.resource_thread import ResourceThread
from embodied_sim.robots import find_robot
from embodied_sim.scene import build_scene

CAMERAS = ("front", "side", "wrist")
IMAGE_SIZE, NUM_ENVS, NUM_THREADS, NUM_ROUNDS = 64, 32, 2, 5
_DISABLED_FLAGS = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX)


def main() -> None:
    """Measure and print the result."""
    backend = _make_backend()
    no_shadow_model = copy.copy(backend.model)
    no_shadow_model.vis.quality.shadowsize = no_shadow_model.vis.quality.offsamples = 0
    low_resolution = low_resolution_model(backend.model, IMAGE_SIZE, IMAGE_SIZE)
    runners = {
        "ours": _make_tabletop_runner(backend),
        "two_threads": _make_mujoco_runner(backend, no_shadow_model, NUM_THREADS, flags_off=True),
        "two_threads_our_facets": _make_mujoco_runner(backend, low_resolution, NUM_THREADS, flags_off=True),
    }
    speeds = dict.fromkeys(runners, 0.0)
    for _ in range(NUM_ROUNDS):
        for name, run in runners.items():
            speeds[name] = max(speeds[name], _measure_views_per_second(run, NUM_ENVS))
    default_runner = _make_mujoco_runner(backend, copy.copy(backend.model), 1, flags_off=False)
    speeds["default"] = _measure_views_per_second(partial(default_runner, 2), 2)
    ratio = {
        f"ours_to_{name}": round(speeds["ours"] / other_speed, 3)
        for name, other_speed in speeds.items()
        if name != "ours"
    }
    json.dump({"views_per_s": {name: round(value) for name, value in speeds.items()}, **ratio}, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _make_backend() -> PhysicsBackend:
    """Create worlds of the tabletop scene with different arm poses."""
    backend = make_backend("batch", build_scene(make_task("cube_in_drawer").props, find_robot("panda")), NUM_ENVS)
    rng = np.random.default_rng(0)
    for _ in range(10):
        backend.ctrl[:] = rng.uniform(-1, 1, backend.ctrl.shape)
        backend.step(10)
    return backend


def _measure_views_per_second(run: Callable[[], object], num_envs: int) -> float:
    start = time.perf_counter()
    run()
    return num_envs * len(CAMERAS) / (time.perf_counter() - start)


def _make_tabletop_runner(backend: PhysicsBackend) -> Callable[[], object]:
    renderer = make_renderer("gl", backend, CAMERAS, IMAGE_SIZE, NUM_THREADS)
    rows = np.arange(NUM_ENVS)
    renderer.render(rows)
    return partial(renderer.render, rows)


def _make_mujoco_runner(
    backend: PhysicsBackend, model: mujoco.MjModel, threads: int, *, flags_off: bool
) -> Callable[..., None]:
    """Create a runner with one `mujoco.Renderer` per thread, each drawing its share of the worlds."""
    workers = [ResourceThread(partial(_open_renderer, model, flags_off)) for _ in range(threads)]

    def run(num_envs: int = NUM_ENVS) -> None:
        jobs = [worker.submit(partial(_draw, backend, range(i, num_envs, threads))) for i, worker in enumerate(workers)]
        for job in jobs:
            job.result()

    run(threads)
    return run


@contextmanager
def _open_renderer(model: mujoco.MjModel, flags_off: bool) -> Iterator[tuple[mujoco.Renderer, mujoco.MjData]]:
    with mujoco.Renderer(model, IMAGE_SIZE, IMAGE_SIZE) as renderer:
        for flag in _DISABLED_FLAGS if flags_off else ():
            renderer.scene.flags[flag] = 0
        yield renderer, mujoco.MjData(model)


def _draw(backend: PhysicsBackend, rows: range, resource: tuple[mujoco.Renderer, mujoco.MjData]) -> None:
    renderer, data = resource
    for row in rows:
        data.qpos[:], data.mocap_pos[:] = backend.qpos[row], backend.mocap_pos[row]
        mujoco.mj_kinematics(backend.model, data)
        mujoco.mj_camlight(backend.model, data)
        for camera in CAMERAS:
            renderer.update_scene(data, camera)
            renderer.render()


if __name__ == "__main__":
    main()
