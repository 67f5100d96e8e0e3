"""A Meta-World task with three cameras. Runs in Meta-World's Python environment; needs MUJOCO_GL=egl or osmesa."""

from __future__ import annotations

import metaworld
import mujoco
import numpy as np
import numpy.typing as npt

TASK_INSTRUCTIONS = {
    "drawer-open-v3": "open the drawer",
    "drawer-close-v3": "close the drawer",
    "button-press-v3": "press the button",
    "door-open-v3": "open the door",
    "push-v3": "push the cube to the goal",
}
CAMERA_SETTINGS = {"front": ("corner2", 35.0), "side": ("corner3", 32.0), "top": ("topview", 40.0)}
"""View -> Meta-World camera and field of view in degrees, narrower than the original for images of 64 pixels."""
FLIPPED_CAMERAS = ("corner2", "corner3")
HIDDEN_MESHES = ("pedestal", "base", "head", "l0", "l1")
"""Meshes of the robot that are irrelevant to the task and take half of the rendering time."""
IMAGE_SIZE = 64
ACTION_REPEAT = 3
"""Steps of Meta-World per frame and per action of a policy."""
MAX_RANDOM_ACTIONS = 12
"""Maximum number of random actions before an episode. Meta-World always starts with the hand at the same position,
where one demonstration is almost sufficient."""
FloatArray = npt.NDArray[np.float64]


class MetaWorldScene:
    """A task with its goals and cameras."""

    def __init__(self, task: str, seed: int) -> None:
        """Create the task; `seed` determines its fifty goals."""
        benchmark = metaworld.MT1(task, seed=seed)
        self.env = benchmark.train_classes[task]()
        self.goals = benchmark.train_tasks
        self.instruction = TASK_INSTRUCTIONS[task]
        model = self.env.model
        # Shadows and multisampling take most of the time that a software renderer needs.
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
        for camera, degrees in CAMERA_SETTINGS.values():
            model.cam_fovy[mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, camera)] = degrees
        for geom in range(model.ngeom):
            if mesh_name(model, geom) in HIDDEN_MESHES:
                model.geom_group[geom] = mujoco.mjNGROUP - 1  # a hidden group
        model.vis.global_.offwidth = model.vis.global_.offheight = IMAGE_SIZE
        self._renderer = mujoco.Renderer(model, IMAGE_SIZE, IMAGE_SIZE)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = 0

    def reset(self, goal: int, rng: np.random.Generator | None = None) -> FloatArray:
        """Start an episode at a goal, with a random start of the hand if `rng` is given; return the observation."""
        self.env.set_task(self.goals[goal])
        observation = self.env.reset()[0]
        random_action = np.append(np.zeros(3) if rng is None else rng.uniform(-1, 1, 3), -1.0)
        for _ in range(0 if rng is None else ACTION_REPEAT * int(rng.integers(MAX_RANDOM_ACTIONS + 1))):
            observation = self.env.step(random_action)[0]
        return np.asarray(observation)

    def render_views(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Render view -> uint8 [64, 64, 3], upright."""
        images = {}
        for view, (camera, _) in CAMERA_SETTINGS.items():
            self._renderer.update_scene(self.env.data, camera)
            image = self._renderer.render()
            images[view] = np.ascontiguousarray(image[::-1, ::-1] if camera in FLIPPED_CAMERAS else image)
        return images

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()


def mesh_name(model: mujoco.MjModel, geom: int) -> str | None:
    """Return the name of a geom's mesh, or None."""
    is_mesh = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH
    return mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_MESH, model.geom_dataid[geom]) if is_mesh else None
