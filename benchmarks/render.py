"""Speed of `sim.render` on the tabletop scene, beside what MuJoCo's own renderer gives, in one run.

    python benchmarks/render.py          (MUJOCO_GL=osmesa for the other OpenGL library)

One JSON object: views per second (the best of several interleaved rounds) and the ratios to ours.
"""

from __future__ import annotations

import os

# mujoco.Renderer takes its library from the environment when mujoco is imported.
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

from sim.backends import Backend, make_backend
from sim.registry import make_task
from sim.render import make_renderer
from sim.render.gl import small_picture_model
from sim.render.worker import Worker
from sim.robots import find_robot
from sim.scene import build_scene

CAMERAS = ("front", "side", "wrist")
SIZE, WORLDS, THREADS, ROUNDS = 64, 32, 2, 5
_OFF = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX)


def main() -> None:
    """Measure and write the result."""
    backend = _worlds()
    plain = copy.copy(backend.model)
    plain.vis.quality.shadowsize = plain.vis.quality.offsamples = 0
    fewer = small_picture_model(backend.model, SIZE, SIZE)
    runners = {
        "ours": _ours(backend),
        "two_threads": _raw(backend, plain, THREADS, flags_off=True),
        "two_threads_our_facets": _raw(backend, fewer, THREADS, flags_off=True),
    }
    speed = dict.fromkeys(runners, 0.0)
    for _ in range(ROUNDS):
        for name, run in runners.items():
            speed[name] = max(speed[name], _views_per_second(run, WORLDS))
    as_it_comes = _raw(backend, copy.copy(backend.model), 1, flags_off=False)
    speed["as_it_comes"] = _views_per_second(partial(as_it_comes, 2), 2)
    ratio = {f"ours_to_{name}": round(speed["ours"] / other, 3) for name, other in speed.items() if name != "ours"}
    json.dump({"views_per_s": {name: round(value) for name, value in speed.items()}, **ratio}, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _worlds() -> Backend:
    """Worlds of the tabletop scene with the arm in different places."""
    backend = make_backend("batch", build_scene(make_task("cube_in_drawer").props, find_robot("panda")), WORLDS)
    rng = np.random.default_rng(0)
    for _ in range(10):
        backend.ctrl[:] = rng.uniform(-1, 1, backend.ctrl.shape)
        backend.step(10)
    return backend


def _views_per_second(run: Callable[[], object], worlds: int) -> float:
    start = time.perf_counter()
    run()
    return worlds * len(CAMERAS) / (time.perf_counter() - start)


def _ours(backend: Backend) -> Callable[[], object]:
    renderer = make_renderer("gl", backend, CAMERAS, SIZE, THREADS)
    rows = np.arange(WORLDS)
    renderer.render(rows)
    return partial(renderer.render, rows)


def _raw(backend: Backend, model: mujoco.MjModel, threads: int, *, flags_off: bool) -> Callable[..., None]:
    """`mujoco.Renderer`, one a thread, each drawing its share of the worlds."""
    workers = [Worker(partial(_renderer, model, flags_off)) for _ in range(threads)]

    def run(worlds: int = WORLDS) -> None:
        jobs = [w.submit(partial(_draw, backend, range(i, worlds, threads))) for i, w in enumerate(workers)]
        for job in jobs:
            job.result()

    run(threads)
    return run


@contextmanager
def _renderer(model: mujoco.MjModel, flags_off: bool) -> Iterator[tuple[mujoco.Renderer, mujoco.MjData]]:
    with mujoco.Renderer(model, SIZE, SIZE) as renderer:
        for flag in _OFF if flags_off else ():
            renderer.scene.flags[flag] = 0
        yield renderer, mujoco.MjData(model)


def _draw(backend: Backend, rows: range, owned: tuple[mujoco.Renderer, mujoco.MjData]) -> None:
    renderer, data = owned
    for row in rows:
        data.qpos[:], data.mocap_pos[:] = backend.qpos[row], backend.mocap_pos[row]
        mujoco.mj_kinematics(backend.model, data)
        mujoco.mj_camlight(backend.model, data)
        for camera in CAMERAS:
            renderer.update_scene(data, camera)
            renderer.render()


if __name__ == "__main__":
    main()
