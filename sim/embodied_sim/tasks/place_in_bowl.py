"""Put the named object into the bowl."""

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.props import Bowl, Item
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.tasks.pick_place import LEAVE_PLAN, PICK_UP_PLAN, PickPlaceTask, lower_to, move_above

BESIDE_DISTANCE_M = 0.125  # distance of an object next to the bowl from its center, m


def bowl_target(state: SceneState) -> FloatArray:
    """Return the target of the object's center in the bowl, [N, 3], m."""
    return state.points["bowl"] + np.array([0.0, 0.0, ITEM_HALF_SIZE_M])


@register
class PlaceInBowl(PickPlaceTask):
    """Reach for the named object, grasp it, put it down in the bowl and release it; the rim keeps it inside."""

    name = "place_in_bowl"
    props = (Bowl(), Item("cube"), Item("other"))
    observed_points = ("bowl",)
    max_episode_steps = 80
    max_distance = 0.05
    miss_offsets = ((-BESIDE_DISTANCE_M, 0.0), (0.0, -BESIDE_DISTANCE_M - 0.01), (-0.1, -0.1))
    undo_waypoints = (
        *PICK_UP_PLAN,
        move_above(bowl_target, x=-BESIDE_DISTANCE_M - 0.03),
        lower_to(bowl_target, x=-BESIDE_DISTANCE_M - 0.03),
        *LEAVE_PLAN,
    )
    target = staticmethod(bowl_target)
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
