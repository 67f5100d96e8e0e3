"""Which geoms a camera can see. A geom outside its view colors no pixel, but costs a draw call of OpenGL."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
import numpy.typing as npt

HIDDEN_GROUP = mujoco.mjNGROUP - 1
"""Group of geoms that are not drawn: MuJoCo draws groups 0 to 2."""


class Frustums:
    """The pyramids that some cameras of a model see."""

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[int], height: int, width: int) -> None:
        """Take cameras by id, and the size of their images in pixels."""
        self._cameras, self._aspect = list(cameras), width / height
        self._groups = model.geom_group.copy()
        # The pyramid of an orthographic camera, or of one with intrinsics, is another.
        self._sees_all = model.cam_sensorsize[self._cameras].any(axis=1) | (model.cam_projection[self._cameras] != 0)

    def geom_groups(self, model: mujoco.MjModel, data: mujoco.MjData) -> npt.NDArray[np.int32]:
        """Return the groups of the geoms per camera, [V, G]: `HIDDEN_GROUP` for geoms outside its pyramid.

        `model` and `data` are those that are drawn. A geom is its bounding sphere; one without is drawn always.
        """
        axes = data.cam_xmat[self._cameras].reshape(-1, 3, 3)
        x, y, z = np.moveaxis((data.geom_xpos - data.cam_xpos[self._cameras][:, None]) @ axes, 2, 0)
        tangent = np.tan(np.radians(model.cam_fovy[self._cameras]) / 2)[:, None]
        outside = z > model.geom_rbound  # behind the camera
        for offset, slope in ((x, tangent * self._aspect), (y, tangent)):
            # Distance to the nearer of two planes through the camera, at which a pixel's own border lies.
            outside |= np.abs(offset) + z * slope > model.geom_rbound * np.hypot(1, slope)
        outside &= (model.geom_rbound > 0) & ~self._sees_all[:, None]
        return np.where(outside, HIDDEN_GROUP, self._groups).astype(np.int32)
