"""Plans that are derived from others: stalls, misses and other deliberate failures, and continuations."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from embodied_sim.state import SceneState
from embodied_sim.targets import Target, keep_position, relative_to_start
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint, hold_forever


def stall_after(plan: Plan, num_waypoints: int | None = None) -> Plan:
    """Return the first `num_waypoints` waypoints of a plan (None: all), then hold the pose."""
    prefix = plan[:num_waypoints]
    grip = prefix[-1].grip if prefix else GRIP_OPEN
    return (*prefix, hold_forever(grip))


def misperceive(plan: Plan, perceive: Callable[[SceneState], SceneState] = SceneState.with_swapped_objects) -> Plan:
    """Return the plan with a changed perception, such as one object or side confused with the other."""

    def wrap_target(target: Target) -> Target:
        return lambda state, start_pos: target(perceive(state), start_pos)

    return tuple(replace(waypoint, target=wrap_target(waypoint.target)) for waypoint in plan)


def shift_targets(plan: Plan, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Plan:
    """Return the plan with every goal displaced by (x, y, z) m, so that the fingers miss the object."""

    def shift_target(target: Target) -> Target:
        return lambda state, start_pos: target(state, start_pos) + np.array([x, y, z])

    return tuple(w if w.target is keep_position else replace(w, target=shift_target(w.target)) for w in plan)


def override_grip(plan: Plan, grip: float, first_waypoint: int = 0) -> Plan:
    """Return the plan with a fixed grip from waypoint `first_waypoint` on."""
    return (*plan[:first_waypoint], *(replace(waypoint, grip=grip) for waypoint in plan[first_waypoint:]))


def miss_plans(
    plan: Plan, beside: Iterable[tuple[float, float]], above: Iterable[float] = (0.05, 0.08), num_shifted: int = 10**6
) -> tuple[Plan, ...]:
    """Return plans that miss the object that waypoint 2 grasps.

    The first `num_shifted` goals are displaced by each of the offsets (x, y) and by each height, m; or the fingers are
    always open, always closed, or open after the grasp.
    """
    offsets = (*((x, y, 0.0) for x, y in beside), *((0.0, 0.0, z) for z in above))
    return (
        *((*shift_targets(plan[:num_shifted], *offset), *plan[num_shifted:]) for offset in offsets),
        *(override_grip(plan, grip) for grip in (GRIP_OPEN, GRIP_CLOSED)),
        override_grip(plan, GRIP_OPEN, first_waypoint=3),
    )


def extend_plan(plan: Plan, continuations: Sequence[Plan]) -> tuple[Plan, ...]:
    """Return the plan without its final hold, followed by each of the continuations."""
    prefix = plan[:-1] if plan[-1] == hold_forever(plan[-1].grip) else plan
    return tuple((*prefix, *continuation) for continuation in continuations)


def retreat_plans(grip: float, height: float = 0.08) -> tuple[Plan, ...]:
    """Return plans that move up by `height` m and then stay, or move back, left or right."""
    up, end = Waypoint(relative_to_start(z=height), grip, tolerance=0.02), hold_forever(grip)
    offsets = ((-0.1, 0.0), (-0.05, 0.12), (-0.05, -0.12))
    return ((up, end), *((up, Waypoint(relative_to_start(x, y), grip, tolerance=0.02), end) for x, y in offsets))
