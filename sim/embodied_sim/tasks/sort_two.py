"""Put the named object into one tray and the other object into the other tray."""

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout
from embodied_sim.plan_variants import misperceive, stall_after
from embodied_sim.props import Item, Trays
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.tasks.pick_place import (
    PICK_UP_PLAN,
    PickPlaceTask,
    drop_plans,
    lower_to,
    place_miss_plans,
    place_plan,
    undo_plan,
)
from embodied_sim.tasks.sides import SIDE_NAMES, misperceive_side, side_point
from embodied_sim.waypoints import Plan


def tray_target(state: SceneState) -> FloatArray:
    """Return the target of an object's center in the target tray, [N, 3], m."""
    return side_point(state, "tray") + np.array([0.0, 0.0, ITEM_HALF_SIZE_M])


def second_goal(state: SceneState) -> SceneState:
    """Return the state with the other object named, and the other tray as its target."""
    return state.with_swapped_objects().with_other_side()


def sort_second(plan: Plan) -> Plan:
    """Sort the first object, then apply the plan to the other object and the other tray."""
    return (*FIRST_PLAN, *misperceive(plan, second_goal))


FIRST_PLAN: Plan = place_plan(tray_target)
FULL_PLAN: Plan = sort_second(FIRST_PLAN)


@register
class SortTwo(PickPlaceTask):
    """Put the named object into the tray on the named side and the other object into the other tray.

    Left is the robot's left (y > 0).
    """

    name = "sort_two"
    props = (Trays(), Item("cube"), Item("other"))
    observed_points = ("left_tray", "right_tray")
    sides = SIDE_NAMES
    subtasks = ("reach first", "grasp first", "place first", "reach second", "grasp second", "place second")
    max_episode_steps = 180
    max_distance = 0.06
    target = staticmethod(tray_target)
    templates = (
        "put the {color} {thing} into the {side} tray and the {other_color} {other_thing} into the other tray",
        "sort: the {color} {thing} goes into the {side} tray, the {other_color} {other_thing} into the other one",
        "first place the {color} {thing} in the {side} tray, then the {other_color} {other_thing} in the other",
        "{color} {thing} into the tray on the {side}, {other_color} {other_thing} into the opposite tray",
    )
    paraphrases = (
        "place the {color} {thing} in the {side} tray and the {other_color} {other_thing} in the other one",
        "sort the {color} {thing} to the {side} and the {other_color} {other_thing} to the other tray",
        "the {color} {thing} belongs in the {side} tray, the {other_color} {other_thing} in the other tray",
        "{side} tray: the {color} {thing}; other tray: the {other_color} {other_thing}",
        "move the {color} {thing} to the {side} tray and then the {other_color} {other_thing} to the other",
        "clear the table: the {color} {thing} to the {side}, the {other_color} {other_thing} to the other side",
        "put the {color} {thing} in the tray on the {side} and the {other_color} {other_thing} in the other tray",
        "into the {side} tray with the {color} {thing}, into the other with the {other_color} {other_thing}",
        "{color} {thing}: {side} tray, {other_color} {other_thing}: other tray",
        "use the {side} tray for the {color} {thing} and the other tray for the {other_color} {other_thing}",
        "carry the {color} {thing} to the {side} and the {other_color} {other_thing} to the remaining tray",
    )

    def goal(self, layout: Layout) -> str:
        """Return the same goal whichever object is named first."""
        fields = self.template_fields(layout)
        names = [f"{fields[f'{prefix}color']} {fields[f'{prefix}thing']}" for prefix in ("", "other_")]
        left, right = names if fields["side"] == SIDE_NAMES[0] else reversed(names)
        return f"put the {left} into the left tray and the {right} into the right tray"

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the positions of both objects relative to their targets."""
        return (*super().extra_observation(state), *super().extra_observation(second_goal(state)))

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        first, first_fraction = super().current_subtask(now, start)
        second, second_fraction = super().current_subtask(second_goal(now), second_goal(start))
        first_done = super().success(now)
        return np.where(first_done, 3 + second, first), np.where(first_done, second_fraction, first_fraction)

    def success(self, now: SceneState) -> np.ndarray:
        return super().success(now) & super().success(second_goal(now))

    def expert_plan(self) -> Plan:
        return FULL_PLAN

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        undo_waypoints = (*PICK_UP_PLAN, *undo_plan(tray_target)[len(FIRST_PLAN) + len(PICK_UP_PLAN) :])
        high_plan = stall_after((*FIRST_PLAN[:5], lower_to(tray_target, above=0.04)))
        near_plan, misses, drops = (
            place_plan(tray_target, -0.13),
            place_miss_plans(tray_target),
            drop_plans(tray_target),
        )
        near_first = (*near_plan, *FULL_PLAN[len(FIRST_PLAN) :])
        exchanged = (*place_plan(tray_target, x=-0.035), *misperceive(place_plan(tray_target, x=0.035)))
        stalls = (stall_after(FULL_PLAN, n) for n in (2, 4, 6, 8, 9, 11, 13, 14))
        return {
            "stall": (*stalls, high_plan, sort_second(high_plan)),
            "drop": (*drops, *map(sort_second, drops)),
            "undo": (
                (*FIRST_PLAN, *undo_waypoints),
                (*FULL_PLAN, *undo_waypoints),
                sort_second((*FIRST_PLAN, *undo_waypoints)),
                stall_after((*FULL_PLAN, *PICK_UP_PLAN)),
            ),
            "wrong_object": (misperceive_side(FULL_PLAN), misperceive(FIRST_PLAN), exchanged),
            "miss": (*misses, *map(sort_second, misses), near_first, sort_second(near_plan)),
        }
