"""Targets of waypoints."""

from collections.abc import Callable

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.state import SceneState

Target = Callable[[SceneState, FloatArray], FloatArray]
"""(state, tool position [N, 3] when the waypoint began) -> goal position [N, 3], m."""


def keep_position(_: SceneState, start_pos: FloatArray) -> FloatArray:
    """Target of a waypoint that keeps the tool in place."""
    return start_pos


def relative_to_start(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Target:
    """Return a target relative to the tool position at the start of the waypoint, m."""
    offset = np.array([x, y, z])
    return lambda state, start_pos: start_pos + offset


def relative_to_point(name: str, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Target:
    """Return a target relative to the current position of a point of the props, m."""
    offset = np.array([x, y, z])
    return lambda state, _: state.points[name] + offset


def relative_to_object(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Target:
    """Return a target relative to the current position of the named object, m."""
    offset = np.array([x, y, z])
    return lambda state, _: state.object_position() + offset
