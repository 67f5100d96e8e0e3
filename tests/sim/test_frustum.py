"""Geoms outside the view of a camera are not drawn, which changes no pixel."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from embodied_sim.domain_randomization import Randomization
from embodied_sim.registry import task_names
from embodied_sim.render.frustum import HIDDEN_GROUP, Frustums
from embodied_sim.vec_env import TabletopVecEnv

SCENE = """
<mujoco>
  <worldbody>
    <camera name="down" pos="0 0 2" fovy="90"/>
    <camera name="away" pos="0 0 2" xyaxes="1 0 0 0 -1 0" fovy="90"/>
    <camera name="narrow" pos="0 0 2" fovy="10"/>
    <camera name="parallel" pos="0 0 2" fovy="1" projection="orthographic"/>
    <camera name="lens" pos="0 0 2" sensorsize=".01 .01" resolution="64 64" focal=".02 .02"/>
    <geom name="plane" type="plane" size="0 0 1" group="1"/>
    <geom name="center" size=".1" pos="0 0 1"/>
    <geom name="edge" size=".1" pos="1.12 0 1"/>
    <geom name="beyond" size=".1" pos="1.16 0 1"/>
    <geom name="corner" size=".1" pos="0 -1.12 1"/>
    <geom name="above" size=".1" pos="0 0 3"/>
  </worldbody>
</mujoco>
"""
ALL = {"plane", "center", "edge", "beyond", "corner", "above"}
SEEN = {
    "down": {"plane", "center", "edge", "corner"},
    "away": {"plane", "above"},
    "narrow": {"plane", "center"},
    "parallel": ALL,
    "lens": ALL,
}


@pytest.mark.parametrize("camera", SEEN)
def test_a_camera_sees_the_spheres_that_touch_its_pyramid(camera: str) -> None:
    """At a field of view of 90 degrees, a plane of the pyramid is 0.1 from a center 1.141 away."""
    model = mujoco.MjModel.from_xml_string(SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    frustums = Frustums(model, [model.camera(camera).id], 64, 64)
    (groups,) = frustums.geom_groups(model, data)
    assert {model.geom(geom).name for geom in np.flatnonzero(groups != HIDDEN_GROUP)} == SEEN[camera]
    assert groups[model.geom("plane").id] == 1, "drawn geoms keep their group"


def test_a_wide_image_sees_more_to_the_side() -> None:
    model = mujoco.MjModel.from_xml_string(SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    (groups,) = Frustums(model, [model.camera("down").id], 64, 80).geom_groups(model, data)
    assert groups[model.geom("beyond").id] != HIDDEN_GROUP and groups[model.geom("above").id] == HIDDEN_GROUP


@pytest.mark.parametrize("robot", ["panda", "six_axis"])
@pytest.mark.parametrize("task", task_names())
def test_no_pixel_changes(task: str, robot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    randomize = Randomization(camera_rotation=0.3, camera_shift=0.1)
    views = ("front", "side", "wrist")
    envs = TabletopVecEnv(task, 4, robot=robot, views=views, randomize=randomize, renderer="gl", threads=1)
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(10):
        envs.step(rng.uniform(-1, 1, (4, envs.single_action_space.shape[0])).astype(np.float32))
    images, hidden = envs.render_views(), []
    cull = Frustums.geom_groups

    def show_all(self: Frustums, model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
        groups = cull(self, model, data)
        hidden.append(int((groups == HIDDEN_GROUP).sum()))
        return np.broadcast_to(self._groups, groups.shape)

    monkeypatch.setattr(Frustums, "geom_groups", show_all)
    assert np.array_equal(envs.render_views(), images)
    assert sum(hidden), "the wrist does not see the base"
    envs.close()
