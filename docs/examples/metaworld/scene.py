"""A Meta-World task with three cameras. Runs in Meta-World's environment; needs MUJOCO_GL=egl or osmesa."""

from __future__ import annotations

import metaworld
import mujoco
import numpy as np
import numpy.typing as npt

INSTRUCTIONS = {
    "drawer-open-v3": "open the drawer",
    "drawer-close-v3": "close the drawer",
    "button-press-v3": "press the button",
    "door-open-v3": "open the door",
    "push-v3": "push the cube to the goal",
}
CAMERAS = {"front": ("corner2", 35.0), "side": ("corner3", 32.0), "top": ("topview", 40.0)}
"""View -> Meta-World's camera, and its field of view in degrees: narrower than theirs, as pictures have 64 pixels."""
UPSIDE_DOWN = ("corner2", "corner3")
FAR = ("pedestal", "base", "head", "l0", "l1")
"""Meshes of the robot that say nothing of its task, and take half the time to draw."""
SIDE = 64
EVERY = 3
"""Steps of Meta-World between two frames, and for which a policy's action is held."""
AWAY = 12
"""Longest time, in actions, for which the hand goes anywhere before an episode begins. Meta-World always begins with it
in one place, and there one demonstration is nearly all that a policy needs."""
Floats = npt.NDArray[np.float64]


class Scene:
    """One of a task's goals at a time, and what the cameras show of it."""

    def __init__(self, task: str, seed: int) -> None:
        """`seed` decides the task's fifty goals: other seeds, other goals."""
        benchmark = metaworld.MT1(task, seed=seed)
        self.env = benchmark.train_classes[task]()
        self.goals = benchmark.train_tasks
        self.instruction = INSTRUCTIONS[task]
        model = self.env.model
        # Shadows and multisampling take most of the time that a software renderer needs.
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
        for camera, degrees in CAMERAS.values():
            model.cam_fovy[mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, camera)] = degrees
        for geom in range(model.ngeom):
            if mesh_of(model, geom) in FAR:
                model.geom_group[geom] = mujoco.mjNGROUP - 1  # is not drawn
        model.vis.global_.offwidth = model.vis.global_.offheight = SIDE
        self._renderer = mujoco.Renderer(model, SIDE, SIDE)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = 0

    def reset(self, goal: int, rng: np.random.Generator | None = None) -> Floats:
        """Begin an episode at one of the goals; with a generator, the hand goes anywhere first. What is seen."""
        self.env.set_task(self.goals[goal])
        observation = self.env.reset()[0]
        away = np.append(np.zeros(3) if rng is None else rng.uniform(-1, 1, 3), -1.0)
        for _ in range(0 if rng is None else EVERY * int(rng.integers(AWAY + 1))):
            observation = self.env.step(away)[0]
        return np.asarray(observation)

    def look(self) -> dict[str, npt.NDArray[np.uint8]]:
        """View -> uint8 [64, 64, 3], upright."""
        seen = {}
        for view, (camera, _) in CAMERAS.items():
            self._renderer.update_scene(self.env.data, camera)
            picture = self._renderer.render()
            seen[view] = np.ascontiguousarray(picture[::-1, ::-1] if camera in UPSIDE_DOWN else picture)
        return seen

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()


def mesh_of(model: mujoco.MjModel, geom: int) -> str | None:
    """The name of the mesh that a shape is, if it is one."""
    is_mesh = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH
    return mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_MESH, model.geom_dataid[geom]) if is_mesh else None
