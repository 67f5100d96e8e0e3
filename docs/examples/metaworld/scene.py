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
SIDE = 64
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
        self._renderer = mujoco.Renderer(model, SIDE, SIDE)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = 0

    def reset(self, goal: int) -> Floats:
        """Begin an episode at one of the goals; the first observation."""
        self.env.set_task(self.goals[goal])
        return np.asarray(self.env.reset()[0])

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
