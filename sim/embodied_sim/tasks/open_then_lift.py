"""Open the drawer, then lift the named cube; the instruction lists both goals."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.plan_variants import misperceive, override_grip, shift_targets, stall_after
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import keep_position, relative_to_start
from embodied_sim.task import select_subtask
from embodied_sim.tasks.cabinet import CabinetTask, chain_templates
from embodied_sim.tasks.cube_in_drawer import OPENING_PLAN
from embodied_sim.tasks.lift_cube import LIFT_PLAN, PUT_DOWN_PLAN, LiftCube, raise_by
from embodied_sim.tasks.open_drawer import PULL_PLAN, PUSH_SHUT_WAYPOINT, RELEASE_PLAN, OpenDrawer
from embodied_sim.tasks.place_in_drawer import CUBE_MISS_OFFSETS_M
from embodied_sim.waypoints import GRIP_CLOSED, GRIP_OPEN, Plan, Waypoint, hold_forever

SUBGOALS = (OpenDrawer(), LiftCube())
FULL_PLAN: Plan = (*OPENING_PLAN, *LIFT_PLAN)


@register
class OpenThenLift(CabinetTask):
    """Pull the drawer out by 13 cm, release it and lift the named cube by 12 cm; both must hold at the end."""

    name = "open_then_lift"
    subtasks = ("open", "lift")
    max_episode_steps = 110
    templates = chain_templates(*SUBGOALS)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        opening, lifting = SUBGOALS
        is_open, (_, open_progress) = opening.success(now), opening.progress(now, start)
        # Reaching for the cube starts where the drawer was released.
        _, lift_progress = lifting.progress(now, replace(start, tool_pos=now.points["knob"]))
        return select_subtask(open_progress, (is_open, lift_progress))

    def success(self, now: SceneState) -> np.ndarray:
        return np.logical_and.reduce([subgoal.success(now) for subgoal in SUBGOALS])

    def expert_plan(self) -> Plan:
        return FULL_PLAN

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        end, release = hold_forever(GRIP_OPEN), Waypoint(keep_position, GRIP_OPEN, hold_steps=4)
        partial_pull = Waypoint(relative_to_start(x=-0.1), GRIP_CLOSED, tolerance=0.015)
        return {
            "stall": (
                *(stall_after(FULL_PLAN, n) for n in (2, 4, 6, 8, 9)),
                *(stall_after((*OPENING_PLAN, *raise_by(z))) for z in (0.03, 0.06, 0.1)),
            ),
            "drop": (
                *((*OPENING_PLAN, *raise_by(z), release, end) for z in (0.05, 0.1, 0.17)),
                (*PULL_PLAN[:-1], partial_pull, *RELEASE_PLAN, *LIFT_PLAN),
            ),
            "undo": ((*PULL_PLAN, PUSH_SHUT_WAYPOINT, *RELEASE_PLAN, *LIFT_PLAN), (*OPENING_PLAN, *PUT_DOWN_PLAN, end)),
            "wrong_object": (misperceive(FULL_PLAN), LIFT_PLAN),
            "miss": (
                *((*OPENING_PLAN, *shift_targets(LIFT_PLAN, x, y)) for x, y in CUBE_MISS_OFFSETS_M),
                *((*OPENING_PLAN, *override_grip(LIFT_PLAN, grip)) for grip in (GRIP_OPEN, GRIP_CLOSED)),
                *((*shift_targets(PULL_PLAN, -0.06, y), *RELEASE_PLAN, *LIFT_PLAN) for y in (-0.05, 0.05)),
            ),
        }
