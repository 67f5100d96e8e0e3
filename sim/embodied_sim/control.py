"""Cartesian action -> joint targets, by damped least squares, for all worlds at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

CONTROL_HZ = 20
SUBSTEPS_PER_STEP = 10
"""Steps of the physics in a control step."""

DOWN_ORIENTATION = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
"""Tool orientation the controller holds: fingers down, opening along y."""


def geometric_jacobian(xanchor: FloatArray, xaxis: FloatArray, tool: FloatArray) -> FloatArray:
    """Jacobian of the tool for hinge joints: rows 0-2 translation, 3-5 rotation.

    `xanchor`, `xaxis`: [N, J, 3] world frame; `tool`: [N, 3]. Returns [N, 6, J].
    Source: Siciliano et al., Robotics (2009), eq. 3.30.
    """
    linear = np.cross(xaxis, tool[:, None, :] - xanchor)
    return np.concatenate([linear, xaxis], axis=2).transpose(0, 2, 1)


def orientation_error(current: FloatArray, desired: FloatArray) -> FloatArray:
    """Small-angle rotation vector from `current` to `desired`, both [N, 3, 3] or broadcastable; [N, 3], rad.

    Source: Siciliano et al., Robotics (2009), eq. 3.91.
    """
    return 0.5 * np.cross(current, np.broadcast_to(desired, current.shape), axis=1).sum(axis=2)


def damped_least_squares(
    jacobian: FloatArray, error: FloatArray, posture: FloatArray | None = None, damping: float = 0.05
) -> FloatArray:
    """Joint step [N, J] that reduces the task-space `error` [N, 6]: J# error + (I - J# J) posture.

    J# = J^T (J J^T + damping^2 I)^-1; `posture` [N, J] is the step wanted where the task leaves freedom.
    Source: Nakamura and Hanafusa, J. Dyn. Sys. Meas. Control 108 (1986), eq. 12; Siciliano (2009), eq. 3.54.
    """
    gram = jacobian @ jacobian.transpose(0, 2, 1)
    gram[:, range(6), range(6)] += damping**2
    if posture is None:
        return _apply_damped_inverse(jacobian, gram, error)
    return posture + _apply_damped_inverse(jacobian, gram, error - np.einsum("nij,nj->ni", jacobian, posture))


def _apply_damped_inverse(jacobian: FloatArray, gram: FloatArray, error: FloatArray) -> FloatArray:
    return np.einsum("nij,ni->nj", jacobian, np.linalg.solve(gram, error[:, :, None])[:, :, 0])
