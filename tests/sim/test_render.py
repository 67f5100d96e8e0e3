"""Renderers agree, do not depend on threads, and do not change the state."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import mujoco
import numpy as np
import pytest

from embodied_sim.backends import PhysicsBackend, make_backend
from embodied_sim.bench.renderer_parity import psnr
from embodied_sim.render import Renderer, gl_context, make_renderer
from embodied_sim.sim_errors import SimError

CAMERAS = ("front", "side", "wrist")
NUM_WORLDS = 11
ALL_ROWS = np.arange(NUM_WORLDS)


@pytest.fixture(scope="module")
def backend(model: mujoco.MjModel) -> PhysicsBackend:
    """Worlds in different states, with crates at different positions."""
    backend = make_backend("batch", model, NUM_WORLDS, 2)
    rng = np.random.default_rng(0)
    backend.mocap_pos[:, 0, 1] += rng.uniform(-0.2, 0.2, NUM_WORLDS)
    for _ in range(10):
        backend.ctrl[:] = rng.uniform(-0.5, 0.5, backend.ctrl.shape)
        backend.step(20)
    return backend


@pytest.fixture(scope="module", params=["gl", "warp"])
def renderer(request: pytest.FixtureRequest, backend: PhysicsBackend) -> Iterator[Renderer]:
    renderer = make_renderer(request.param, backend, CAMERAS, 64, threads=2)
    yield renderer
    renderer.close()


def kind(renderer: Renderer) -> str:
    return "gl" if "OpenGL" in renderer.describe() else "warp"


def test_every_world_and_view_differs(renderer: Renderer) -> None:
    frames = renderer.render(ALL_ROWS)
    assert frames.shape == (NUM_WORLDS, 3, 64, 64, 3) and frames.dtype == np.uint8
    assert len({image.tobytes() for world in frames for image in world}) == 3 * NUM_WORLDS


def test_subset_of_rows_equals_rows_of_all(renderer: Renderer) -> None:
    rows = np.array([9, 2, 2, 10])
    assert np.array_equal(renderer.render(rows), renderer.render(ALL_ROWS)[rows])
    assert renderer.render(np.array([], np.int64)).shape == (0, 3, 64, 64, 3)


def test_views_are_in_the_requested_order(renderer: Renderer, backend: PhysicsBackend) -> None:
    name = kind(renderer)
    other = make_renderer(name, backend, ("wrist", "front"), 64)
    assert np.array_equal(other.render(ALL_ROWS), renderer.render(ALL_ROWS)[:, [2, 0]])
    other.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_number_of_threads_changes_no_pixel(backend: PhysicsBackend, threads: int) -> None:
    one, other = (make_renderer("gl", backend, CAMERAS, (48, 80), threads=n) for n in (2, threads))
    frames = one.render(ALL_ROWS)
    assert frames.shape == (NUM_WORLDS, 3, 48, 80, 3)
    assert np.array_equal(frames, other.render(ALL_ROWS))
    one.close()
    other.close()


def test_rendering_changes_no_state(renderer: Renderer, model: mujoco.MjModel) -> None:
    name = kind(renderer)
    rendered, reference = make_backend("batch", model, 2, 2), make_backend("batch", model, 2, 2)
    renderer_ = make_renderer(name, rendered, CAMERAS, 64)
    for targets in np.random.default_rng(1).uniform(-1, 1, (10, 2, model.nu)):
        for backend in (rendered, reference):
            backend.ctrl[:] = targets
            backend.step(10)
        before = [rendered.qpos.copy(), rendered.qvel.copy(), rendered.xpos.copy()]
        renderer_.render(np.arange(2))
        after = (rendered.qpos, rendered.qvel, rendered.xpos)
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        assert np.array_equal(rendered.qpos, reference.qpos)
    renderer_.close()


@pytest.mark.parametrize("size", [64, 128])
def test_ray_tracer_and_opengl_agree(backend: PhysicsBackend, size: int) -> None:
    gl_renderer, ray_tracer = (make_renderer(name, backend, CAMERAS, size) for name in ("gl", "warp"))
    gl_frames, traced_frames = gl_renderer.render(ALL_ROWS), ray_tracer.render(ALL_ROWS)
    for view, name in enumerate(CAMERAS):
        assert psnr(gl_frames[:, view], traced_frames[:, view]) >= 35, name
    gl_renderer.close()
    ray_tracer.close()


@pytest.mark.parametrize("name", ["gl", "warp"])
def test_image_with_known_pixels(name: str) -> None:
    # Camera and light point straight down. Ambient 0.2 + 0.1 and diffuse 0.3 + 0.4 sum to 1, so colors are unchanged.
    # The view shows 2 m x 1 m: the red tile is the upper left quarter, the rest is floor.
    model = mujoco.MjModel.from_xml_string("""<mujoco>
      <visual><headlight ambient=".2 .2 .2" diffuse=".3 .3 .3" specular="0 0 0"/></visual><worldbody>
      <light type="directional" dir="0 0 -1" ambient=".1 .1 .1" diffuse=".4 .4 .4" specular="0 0 0"/>
      <camera name="top" pos="0 0 1" fovy="53.130102"/>
      <geom type="box" size="5 5 .1" pos="0 0 -.1" rgba="0 .4 .8 1"/>
      <body mocap="true" pos="-.5 .25 0"><geom type="box" size=".5 .25 .0001" rgba="1 .2 0 1"/></body>
      <site type="sphere" size=".3" pos=".5 -.25 0"/></worldbody></mujoco>""")
    backend = make_backend("batch", model, 2, 1)
    backend.mocap_pos[1, 0, :2] = (0.5, -0.25)
    renderer = make_renderer(name, backend, ["top"], (40, 80))
    expected = np.full((2, 1, 40, 80, 3), (0, 102, 204), np.uint8)
    expected[0, 0, :20, :40] = (255, 51, 0)
    expected[1, 0, 20:, 40:] = (255, 51, 0)
    assert np.abs(renderer.render(np.arange(2)).astype(int) - expected).max() <= 1
    renderer.close()


# mujoco.Renderer reads the OpenGL library from the environment at import, so it needs its own process.
REFERENCE_SCRIPT = """
import sys, mujoco, numpy as np
folder, cameras = sys.argv[1], sys.argv[2:]
model = mujoco.MjModel.from_binary_path(folder + "/model.mjb")
model.vis.quality.offsamples = model.vis.quality.shadowsize = 0
data, option, images = mujoco.MjData(model), mujoco.MjvOption(), []
option.sitegroup[:] = 0
with mujoco.Renderer(model, 64, 64) as renderer:
    for data.qpos[:], data.mocap_pos[:] in zip(np.load(folder + "/qpos.npy"), np.load(folder + "/mocap.npy")):
        mujoco.mj_forward(model, data)
        for camera in cameras:
            renderer.update_scene(data, camera, option)
            images.append(renderer.render())
np.save(folder + "/images.npy", images)
"""


def test_images_equal_those_of_mujoco_renderer(backend: PhysicsBackend, model: mujoco.MjModel, tmp_path: Path) -> None:
    mujoco.mj_saveModel(model, str(tmp_path / "model.mjb"))
    np.save(tmp_path / "qpos.npy", backend.qpos)
    np.save(tmp_path / "mocap.npy", backend.mocap_pos)
    process_env = {**os.environ, "MUJOCO_GL": str(gl_context.find_gl_platform())}
    subprocess.run([sys.executable, "-c", REFERENCE_SCRIPT, str(tmp_path), *CAMERAS], env=process_env, check=True)
    expected = np.load(tmp_path / "images.npy").reshape(NUM_WORLDS, 3, 64, 64, 3)
    renderer = make_renderer("gl", backend, CAMERAS, 64)
    assert psnr(renderer.render(ALL_ROWS), expected) >= 40  # round shapes have fewer facets
    renderer.close()


def test_threads_end_with_the_renderer(backend: PhysicsBackend) -> None:
    gc.collect()  # frees renderers of other tests before counting
    before = threading.active_count()
    closed, dropped = (make_renderer("gl", backend, CAMERAS, 64, threads=2) for _ in range(2))
    assert threading.active_count() == before + 4
    closed.close()
    closed.close()
    del dropped
    gc.collect()
    assert threading.active_count() == before


def test_process_may_end_without_close() -> None:
    script = """
import mujoco, numpy
from embodied_sim.backends import make_backend
from embodied_sim.render import make_renderer
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/><camera name='c'/></worldbody></mujoco>")
renderer = make_renderer("gl", make_backend("batch", model, 2, 1), ["c"], 8)
renderer.render(numpy.arange(2))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def no_opengl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable OpenGL."""
    monkeypatch.setenv("MUJOCO_GL", "off")
    gl_context.find_gl_platform.cache_clear()
    yield
    gl_context.find_gl_platform.cache_clear()


@pytest.mark.usefixtures("no_opengl")
def test_ray_tracer_replaces_missing_opengl(backend: PhysicsBackend) -> None:
    renderer = make_renderer("auto", backend, CAMERAS, 64)
    assert "libegl1" in renderer.describe() and "libosmesa6" in renderer.describe()
    assert renderer.render(ALL_ROWS[:2]).any()
    renderer.close()
    renderer.close()
    with pytest.raises(SimError, match=r"MUJOCO_GL=off.*libegl1"):
        make_renderer("gl", backend, CAMERAS, 64)


@pytest.mark.usefixtures("no_opengl")
def test_error_names_both_remedies(backend: PhysicsBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "embodied_sim.render.ray_tracer", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    with pytest.raises(SimError, match=r"libegl1 .* or pip install 'embodied-rm\[warp\]'"):
        make_renderer("auto", backend, CAMERAS, 64)


def test_invalid_arguments_are_errors(backend: PhysicsBackend) -> None:
    with pytest.raises(SimError, match=r"unknown camera 'wirst'. Did you mean 'wrist'\? Available: front, side, wrist"):
        make_renderer("auto", backend, ["wirst"], 64)
    with pytest.raises(SimError, match="at least one camera"):
        make_renderer("auto", backend, [], 64)
    with pytest.raises(SimError, match="0 x 64"):
        make_renderer("auto", backend, CAMERAS, (0, 64))
    with pytest.raises(SimError, match=r"unknown renderer 'opengl'.*Available: auto, gl, warp"):
        make_renderer("opengl", backend, CAMERAS, 64)


def test_triton_is_loaded_before_the_opengl_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both contain LLVM, and the process crashes in the other order."""
    (tmp_path / "triton.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MUJOCO_GL", "egl")
    names: list[str] = []

    def import_module(name: str) -> MagicMock:
        names.append(name)
        return MagicMock()

    monkeypatch.setattr(gl_context.importlib, "import_module", import_module)
    gl_context.make_gl_context("egl", 8, 8)
    assert names == ["triton", "mujoco.egl"]
