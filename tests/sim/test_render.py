"""Images show the worlds asked for, whoever draws them and on however many threads, and looking changes nothing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
from embodied_sim.bench.images import psnr

from embodied_sim.backends import PhysicsBackend, make_backend
from embodied_sim.render import Renderer, gl_context, make_renderer
from embodied_sim.sim_errors import SimError

CAMERAS = ("front", "side", "wrist")
NUM = 11
EVERY = np.arange(NUM)


@pytest.fixture(scope="module")
def backend(model: mujoco.MjModel) -> PhysicsBackend:
    """Worlds in different states, crates in different places."""
    backend = make_backend("batch", model, NUM, 2)
    rng = np.random.default_rng(0)
    backend.mocap_pos[:, 0, 1] += rng.uniform(-0.2, 0.2, NUM)
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


def test_every_env_and_view_is_drawn_and_differs(renderer: Renderer) -> None:
    frames = renderer.render(EVERY)
    assert frames.shape == (NUM, 3, 64, 64, 3) and frames.dtype == np.uint8
    assert len({image.tobytes() for env in frames for image in env}) == 3 * NUM


def test_rows_are_what_all_of_them_give(renderer: Renderer) -> None:
    rows = np.array([9, 2, 2, 10])
    assert np.array_equal(renderer.render(rows), renderer.render(EVERY)[rows])
    assert renderer.render(np.array([], np.int64)).shape == (0, 3, 64, 64, 3)


def test_the_cameras_come_in_the_order_asked_for(renderer: Renderer, backend: PhysicsBackend) -> None:
    name = kind(renderer)
    other = make_renderer(name, backend, ("wrist", "front"), 64)
    assert np.array_equal(other.render(EVERY), renderer.render(EVERY)[:, [2, 0]])
    other.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_no_pixel(backend: PhysicsBackend, threads: int) -> None:
    one, other = (make_renderer("gl", backend, CAMERAS, (48, 80), threads=n) for n in (2, threads))
    frames = one.render(EVERY)
    assert frames.shape == (NUM, 3, 48, 80, 3)
    assert np.array_equal(frames, other.render(EVERY))
    one.close()
    other.close()


def test_looking_changes_nothing(renderer: Renderer, model: mujoco.MjModel) -> None:
    name = kind(renderer)
    seen, unseen = make_backend("batch", model, 2, 2), make_backend("batch", model, 2, 2)
    looker = make_renderer(name, seen, CAMERAS, 64)
    for targets in np.random.default_rng(1).uniform(-1, 1, (10, 2, model.nu)):
        for backend in (seen, unseen):
            backend.ctrl[:] = targets
            backend.step(10)
        before = [seen.qpos.copy(), seen.qvel.copy(), seen.xpos.copy()]
        looker.render(np.arange(2))
        assert all(np.array_equal(a, b) for a, b in zip(before, (seen.qpos, seen.qvel, seen.xpos), strict=True))
        assert np.array_equal(seen.qpos, unseen.qpos)
    looker.close()


@pytest.mark.parametrize("size", [64, 128])
def test_the_ray_tracer_and_opengl_agree(backend: PhysicsBackend, size: int) -> None:
    by_gl, by_rays = (make_renderer(name, backend, CAMERAS, size) for name in ("gl", "warp"))
    ours, theirs = by_gl.render(EVERY), by_rays.render(EVERY)
    for view, name in enumerate(CAMERAS):
        assert psnr(ours[:, view], theirs[:, view]) >= 35, name
    by_gl.close()
    by_rays.close()


@pytest.mark.parametrize("name", ["gl", "warp"])
def test_a_image_whose_every_pixel_is_known(name: str) -> None:
    # Seen from straight above, lit from straight above: ambient 0.2 + 0.1, diffuse 0.3 + 0.4, so each color shows as
    # it is. 2 m x 1 m are in view: the red tile is the upper left quarter, the rest is floor.
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


# mujoco.Renderer takes its OpenGL library from the environment at import: it needs a process of its own.
REFERENCE = """
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


def test_images_are_those_of_mujoco_renderer(backend: PhysicsBackend, model: mujoco.MjModel, tmp_path: Path) -> None:
    mujoco.mj_saveModel(model, str(tmp_path / "model.mjb"))
    np.save(tmp_path / "qpos.npy", backend.qpos)
    np.save(tmp_path / "mocap.npy", backend.mocap_pos)
    environment = {**os.environ, "MUJOCO_GL": str(gl_context.find_gl_platform())}
    subprocess.run([sys.executable, "-c", REFERENCE, str(tmp_path), *CAMERAS], env=environment, check=True)
    theirs = np.load(tmp_path / "images.npy").reshape(NUM, 3, 64, 64, 3)
    ours = make_renderer("gl", backend, CAMERAS, 64)
    assert psnr(ours.render(EVERY), theirs) >= 40  # ours has fewer facets
    ours.close()


def test_threads_end_with_the_renderer(backend: PhysicsBackend) -> None:
    gc.collect()  # renderers of other tests end here, not between the counts
    before = threading.active_count()
    closed, dropped = (make_renderer("gl", backend, CAMERAS, 64, threads=2) for _ in range(2))
    assert threading.active_count() == before + 4
    closed.close()
    closed.close()
    del dropped
    gc.collect()
    assert threading.active_count() == before


def test_a_process_may_end_without_closing() -> None:
    script = """
import mujoco, numpy
from sim.backends import make_backend
from sim.render import make_renderer
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/><camera name='c'/></worldbody></mujoco>")
renderer = make_renderer("gl", make_backend("batch", model, 2, 1), ["c"], 8)
renderer.render(numpy.arange(2))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def no_opengl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which OpenGL may not be used."""
    monkeypatch.setenv("MUJOCO_GL", "off")
    gl_context.find_gl_platform.cache_clear()
    yield
    gl_context.find_gl_platform.cache_clear()


@pytest.mark.usefixtures("no_opengl")
def test_without_opengl_the_ray_tracer_draws_and_says_what_to_install(backend: PhysicsBackend) -> None:
    renderer = make_renderer("auto", backend, CAMERAS, 64)
    assert "libegl1" in renderer.describe() and "libosmesa6" in renderer.describe()
    assert renderer.render(EVERY[:2]).any()
    renderer.close()
    renderer.close()
    with pytest.raises(SimError, match=r"MUJOCO_GL=off.*libegl1"):
        make_renderer("gl", backend, CAMERAS, 64)


@pytest.mark.usefixtures("no_opengl")
def test_with_neither_both_remedies_are_named(backend: PhysicsBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "embodied_sim.render.ray_tracer", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    with pytest.raises(SimError, match=r"libegl1 .* or pip install 'embodied-rm\[warp\]'"):
        make_renderer("auto", backend, CAMERAS, 64)


def test_mistakes_are_named_with_the_choices(backend: PhysicsBackend) -> None:
    with pytest.raises(SimError, match=r"unknown camera 'wirst'. Did you mean 'wrist'\? Available: front, side, wrist"):
        make_renderer("auto", backend, ["wirst"], 64)
    with pytest.raises(SimError, match="at least one camera"):
        make_renderer("auto", backend, [], 64)
    with pytest.raises(SimError, match="0 x 64"):
        make_renderer("auto", backend, CAMERAS, (0, 64))
    with pytest.raises(SimError, match=r"unknown renderer 'opengl'.*Available: auto, gl, warp"):
        make_renderer("opengl", backend, CAMERAS, 64)
