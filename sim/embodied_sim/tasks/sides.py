"""Shared by tasks with a left and a right target. Left is the robot's left: y > 0."""

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import misperceive
from embodied_sim.state import SceneState
from embodied_sim.waypoints import Plan

SIDE_NAMES = ("left", "right")


def side_point(state: SceneState, kind: str, *, other_side: bool = False) -> FloatArray:
    """Return the point `left_<kind>` or `right_<kind>` of the target side, or of the other one, [N, 3], m."""
    left, right = (state.points[f"{side}_{kind}"] for side in SIDE_NAMES)
    return np.where((state.side_index == int(other_side))[:, None], left, right)


def misperceive_side(plan: Plan) -> Plan:
    """Return the plan with the sides confused."""
    return misperceive(plan, SceneState.with_other_side)
