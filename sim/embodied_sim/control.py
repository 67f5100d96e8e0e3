"""Batched differential inverse kinematics by damped least squares."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

CONTROL_HZ = 20
SUBSTEPS_PER_STEP = 10  # physics steps per control step

DOWN_ORIENTATION = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
"""Tool orientation that the controller holds: fingers down, opening along y."""


def geometric_jacobian(xanchor: FloatArray, xaxis: FloatArray, tool: FloatArray) -> FloatArray:
    """Compute the geometric Jacobian [N, 6, J] of the tool for hinge joints: rows 0-2 translation, 3-5 rotation.

    `xanchor`, m, and `xaxis` are the joints' anchors and axes [N, J, 3] in the world frame, `tool` its position [N, 3],
    m. Source: Siciliano et al., Robotics (2009), eq. 3.30.
    """
    linear = np.cross(xaxis, tool[:, None, :] - xanchor)
    return np.concatenate([linear, xaxis], axis=2).transpose(0, 2, 1)


def orientation_error(current: FloatArray, desired: FloatArray) -> FloatArray:
    """Compute the small-angle rotation vector [N, 3], rad, between two orientations [N, 3, 3].

    Source: Siciliano et al., Robotics (2009), eq. 3.91.
    """
    return 0.5 * np.cross(current, np.broadcast_to(desired, current.shape), axis=1).sum(axis=2)


def damped_least_squares(
    jacobian: FloatArray, error: FloatArray, posture: FloatArray | None = None, damping: float = 0.05
) -> FloatArray:
    """Compute the joint displacement J# error + (I - J# J) posture, with J# = J^T (J J^T + damping^2 I)^-1.

    `jacobian` is [N, 6, J], `error` [N, 6] that in task space, `posture` the desired joint displacement [N, J] in its
    null space. Returns the joint displacement [N, J], rad.
    Source: Nakamura and Hanafusa, J. Dyn. Sys. Meas. Control 108 (1986), eq. 12; Siciliano (2009), eq. 3.54.
    """
    gram = jacobian @ jacobian.transpose(0, 2, 1)
    gram[:, range(6), range(6)] += damping**2
    if posture is None:
        return _apply_damped_inverse(jacobian, gram, error)
    return posture + _apply_damped_inverse(jacobian, gram, error - np.einsum("nij,nj->ni", jacobian, posture))


def _apply_damped_inverse(jacobian: FloatArray, gram: FloatArray, error: FloatArray) -> FloatArray:
    return np.einsum("nij,ni->nj", jacobian, np.linalg.solve(gram, error[:, :, None])[:, :, 0])


class ActionDelay:
    """Delay the actions of N environments, each by its own number of control steps."""

    def __init__(self, num_envs: int, action_dim: int, max_delay: int) -> None:
        self._history = np.zeros((max_delay + 1, num_envs, action_dim))
        self.delay: npt.NDArray[np.int64] = np.zeros(num_envs, np.int64)
        """[N]: control steps between an action and its effect, at most `max_delay`."""

    def reset(self, rows: npt.NDArray[np.int64]) -> None:
        """Clear the history of `rows` at the start of their episodes: no motion, gripper open."""
        self._history[:, rows] = 0.0
        self._history[:, rows, -1] = -1.0

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the action history and the delays."""
        return {"history": self._history.copy(), "delay": self.delay.copy()}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore a `snapshot`."""
        self._history[...], self.delay[...] = snapshot["history"], snapshot["delay"]

    def push(self, action: FloatArray) -> FloatArray:
        """Add the newest actions [N, A] and return those [N, A] that take effect now."""
        self._history = np.roll(self._history, 1, axis=0)
        self._history[0] = action
        return self._history[self.delay, np.arange(len(self.delay))]
