"""Push the named object along the table into a zone."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout
from embodied_sim.plan_variants import misperceive, retreat_plans, stall_after
from embodied_sim.props import Slider, Zones
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.props.side_targets import ZONE_OFFSET_Y_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import relative_to_start
from embodied_sim.task import Task, distance, proximity, reach_progress, select_subtask
from embodied_sim.tasks import pushing
from embodied_sim.tasks.pick_place import LEAVE_PLAN, PICK_UP_PLAN
from embodied_sim.tasks.sides import SIDE_NAMES, misperceive_side
from embodied_sim.waypoints import GRIP_CLOSED, Plan, Waypoint

MISS_OFFSETS_M = ((-0.075, 0.0), (0.0, 0.065), (0.0, -0.065), (-0.1, 0.0))
"""Offsets from the center of a zone at which an object is not fully inside, m."""
PASS_BY_OFFSET_M = 0.1  # distance from the object's center at which the hand passes without contact, m
FULL_PLAN: Plan = pushing.push_plan()
ACROSS_PLAN: Plan = FULL_PLAN[:4]  # push across until the object is in line with the zone, then raise the hand


@register
class PushToZone(Task):
    """Lower the hand behind the named object and push it along the table until it is fully inside the named zone.

    Left is the robot's left (y > 0). Carrying it there counts as well.
    """

    name = "push_to_zone"
    props = (Zones(), Slider("cube"), Slider("cylinder", shape="cylinder"))
    observed_points = ("left_zone", "right_zone")
    sides = SIDE_NAMES
    subtasks = ("reach", "push")
    max_episode_steps = 140
    templates = (
        "push the {color} {thing} into the {side} zone",
        "slide the {color} {thing} to the zone on the {side}",
        "move the {color} {thing} along the table into the {side} field",
        "shove the {color} {thing} onto the {side} patch",
    )
    paraphrases = (
        "bring the {color} {thing} into the {side} zone",
        "push the {color} {thing} over to the {side}, into the zone",
        "get the {color} {thing} onto the {side} field",
        "the {color} {thing} belongs in the {side} zone",
        "slide the {color} {thing} into the field on the {side}",
        "drive the {color} {thing} along the table to the {side} zone",
        "nudge the {color} {thing} into the {side} area",
        "transfer the {color} {thing} to the {side} area",
    )

    def draw_layout(self, rng: np.random.Generator, num_start_poses: int) -> Layout:
        """Draw a start in which neither object blocks the other's way to either zone.

        The positions therefore do not reveal which object and zone the instruction names.
        """
        while True:
            layout = super().draw_layout(rng, num_start_poses)
            zones = [layout.fixture_positions[0] + (0.0, y) for y in (ZONE_OFFSET_Y_M, -ZONE_OFFSET_Y_M)]
            first, second = layout.item_poses[:, :2]
            if all(pushing.is_path_clear(*pair, zone) for pair in ((first, second), (second, first)) for zone in zones):
                return layout

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the position of the named object relative to its zone."""
        return (state.object_position() - pushing.zone_target(state),)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        remaining, start_distance = (np.abs(pushing.offset_to_zone(state)).sum(axis=1) for state in (now, start))

        def push_start(state: SceneState) -> FloatArray:
            return pushing.beside_object(pushing.PUSH_HEIGHT_M)(state, state.tool_pos)

        is_ready = distance(now.tool_pos, push_start(now)) < 0.025
        push_progress = proximity(remaining - pushing.ZONE_TOLERANCE_M, start_distance - pushing.ZONE_TOLERANCE_M)
        return select_subtask(
            reach_progress(now, start, push_start), (is_ready | (remaining < start_distance - 0.01), push_progress)
        )

    def success(self, now: SceneState) -> np.ndarray:
        offset = np.abs(now.object_position() - pushing.zone_target(now))
        return (offset[:, :2] < pushing.ZONE_TOLERANCE_M).all(axis=1) & (offset[:, 2] < ITEM_HALF_SIZE_M + 0.01)

    def expert_plan(self) -> Plan:
        return FULL_PLAN

    def post_success_plans(self) -> tuple[Plan, ...]:
        return retreat_plans(GRIP_CLOSED)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        carry_out = (
            Waypoint(relative_to_start(y=0.12), GRIP_CLOSED, tolerance=0.02),
            Waypoint(relative_to_start(z=-0.09), GRIP_CLOSED, tolerance=0.02),
        )
        return {
            "stall": (
                *(stall_after(FULL_PLAN, n) for n in (1, 2, 3, 5, 6)),
                *(stall_after(pushing.push_plan(x)) for x in (-0.065, -0.075, -0.09, -0.105)),
            ),
            "drop": (
                *(pushing.stray_plan(x) for x in (-0.065, -0.075, -0.09, -0.14)),
                (*ACROSS_PLAN, pushing.move_to_zone(0.085), pushing.move_to_zone(pushing.PUSH_HEIGHT_M)),
            ),
            "undo": (
                *((*FULL_PLAN, pushing.RETREAT_WAYPOINT, *pushing.push_plan(y=y)) for y in (0.12, -0.12)),
                (*FULL_PLAN, pushing.RETREAT_WAYPOINT, *PICK_UP_PLAN, *carry_out, *LEAVE_PLAN),
            ),
            "wrong_object": (
                misperceive(FULL_PLAN),
                misperceive_side(FULL_PLAN),
                misperceive(misperceive_side(FULL_PLAN)),
            ),
            "miss": (
                *(pushing.mime_plan(z) for z in (0.075, 0.1)),
                *(pushing.mime_plan(pushing.PUSH_HEIGHT_M, y) for y in (PASS_BY_OFFSET_M, -PASS_BY_OFFSET_M)),
                *(pushing.push_plan(x, y) for x, y in MISS_OFFSETS_M),
            ),
        }
