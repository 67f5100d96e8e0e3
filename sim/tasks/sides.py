"""What the tasks with a left and a right share. Left is the robot's: y > 0."""

from __future__ import annotations

import numpy as np

from sim.control import FloatArray
from sim.experts import Plan, mistaken
from sim.state import SceneState

SIDES = ("left", "right")


def at_side(state: SceneState, kind: str, *, other: bool = False) -> FloatArray:
    """[N, 3]: the point `left_<kind>` or `right_<kind>`, whichever the instruction means, or the other one."""
    left, right = (state.points[f"{side}_{kind}"] for side in SIDES)
    return np.where((state.side == int(other))[:, None], left, right)


def wrong_side(plan: Plan) -> Plan:
    """The same plan by somebody who mistakes one side for the other."""
    return mistaken(plan, SceneState.other_side)
