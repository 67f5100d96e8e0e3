"""Put the named object into the bowl."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.props import Bowl, Item
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.task import Task
from embodied_sim.tasks.pick_place import (
    LEAVE_PLAN,
    PICK_UP_PLAN,
    drop_plans,
    is_at_rest,
    is_released,
    lower_to,
    miss_plans,
    move_above,
    pick_place_subtask,
    place_plan,
    then_stall,
    undo_plan,
)
from embodied_sim.waypoints import GRIP_OPEN, Plan, misperceive, retreat_plans, stall_after

MAX_CENTER_DISTANCE_M = 0.05
"""Maximum distance of the object from the center of the bowl, m; the rim prevents more."""
BESIDE_DISTANCE_M = 0.125
"""Distance of an object next to the bowl from its center, m."""


def bowl_target(state: SceneState) -> FloatArray:
    """Return the target of the object's center in the bowl, [N, 3], m."""
    return state.points["bowl"] + np.array([0.0, 0.0, ITEM_HALF_SIZE_M])


@register
class PlaceInBowl(Task):
    """Reach for the named object, grasp it, put it down in the bowl and release it."""

    name = "place_in_bowl"
    props = (Bowl(), Item("cube"), Item("other"))
    observed_points = ("bowl",)
    subtasks = ("reach", "grasp", "place")
    max_episode_steps = 80
    templates = (
        "put the {color} {thing} into the bowl",
        "place the {color} {thing} in the bowl",
        "drop the {color} {thing} into the bowl",
        "pick up the {color} {thing} and leave it in the bowl",
    )
    paraphrases = (
        "move the {color} {thing} into the bowl",
        "the {color} {thing} goes into the bowl",
        "lay the {color} {thing} in the bowl",
        "carry the {color} {thing} over to the bowl and let it go",
        "transfer the {color} {thing} to the bowl",
        "grasp the {color} {thing} and put it in the bowl",
        "set the {color} {thing} down inside the bowl",
        "get the {color} {thing} into the bowl",
    )
    reversed_instructions = (
        "take the {color} {thing} out of the bowl",
        "get the {color} {thing} from the bowl",
        "remove the {color} {thing} from the bowl",
        "lift the {color} {thing} out of the bowl",
        "pick the {color} {thing} out of the bowl",
        "empty the {color} {thing} out of the bowl",
    )

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the position of the named object relative to the bowl."""
        return (state.object_position() - bowl_target(state),)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        return pick_place_subtask(now, start, 0, bowl_target(now), bowl_target(start), MAX_CENTER_DISTANCE_M)

    def success(self, now: SceneState) -> np.ndarray:
        return is_at_rest(now.object_position(), bowl_target(now), MAX_CENTER_DISTANCE_M) & is_released(
            now, now.object_position()
        )

    def expert_plan(self) -> Plan:
        return place_plan(bowl_target)

    def post_success_plans(self) -> tuple[Plan, ...]:
        return retreat_plans(GRIP_OPEN)

    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        full_plan = place_plan(bowl_target)
        miss_offsets = ((-BESIDE_DISTANCE_M, 0.0), (0.0, -BESIDE_DISTANCE_M - 0.01), (-0.1, -0.1))
        return {
            "stall": (
                *(stall_after(full_plan, n) for n in (1, 2, 3, 4, 5, 6)),
                then_stall((*full_plan[:5], lower_to(bowl_target, above=0.03))),
            ),
            "drop": drop_plans(bowl_target),
            "undo": (
                undo_plan(bowl_target),
                (
                    *full_plan,
                    *PICK_UP_PLAN,
                    move_above(bowl_target, x=-BESIDE_DISTANCE_M - 0.03),
                    lower_to(bowl_target, x=-BESIDE_DISTANCE_M - 0.03),
                    *LEAVE_PLAN,
                ),
                then_stall((*full_plan, *PICK_UP_PLAN)),
            ),
            "wrong_object": (misperceive(full_plan),),
            "miss": (*miss_plans(bowl_target), *(place_plan(bowl_target, x, y) for x, y in miss_offsets)),
        }
