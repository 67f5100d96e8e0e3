"""Put the named cube on top of the other one."""

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.props import Item
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.targets import relative_to_start
from embodied_sim.task import ITEM_WIDTH_M
from embodied_sim.tasks.pick_place import PickPlaceTask
from embodied_sim.waypoints import GRIP_CLOSED, Waypoint

ADJACENT_DISTANCE_M = 0.056  # distance between the centers of two adjacent cubes, m


@register
class StackCubes(PickPlaceTask):
    """Reach for the named cube, grasp it, put it down on the other and release it."""

    name = "stack_cubes"
    props = (Item("cube"), Item("other"))
    max_episode_steps = 75
    max_distance = 0.022  # at 2.5 cm the upper cube tips over
    miss_offsets = ((-ADJACENT_DISTANCE_M, 0.0), (ADJACENT_DISTANCE_M, 0.0), (0.034, 0.0), (-0.034, 0.0), (0.0, 0.034))
    undo_waypoints = tuple(
        Waypoint(relative_to_start(y=y, z=z), GRIP_CLOSED, tolerance=0.02)
        for y, z in ((0.1, 0.0), (0.0, -0.1), (-0.2, 0.0))
    )
    templates = (
        "put the {color} {thing} on top of the {other_color} {other_thing}",
        "stack the {color} {thing} on the {other_color} one",
        "place the {color} block onto the {other_color} block",
        "build a tower: the {color} {thing} on the {other_color} {other_thing}",
    )
    paraphrases = (
        "set the {color} {thing} on the {other_color} {other_thing}",
        "the {color} {thing} goes on top of the {other_color} one",
        "pile the {color} {thing} onto the {other_color} {other_thing}",
        "lay the {color} block on the {other_color} block",
        "pick up the {color} {thing} and put it on the {other_color} {other_thing}",
        "make a stack with the {color} {thing} on the {other_color} {other_thing}",
        "rest the {color} block on top of the {other_color} block",
        "move the {color} {thing} onto the {other_color} one",
    )
    reversed_instructions = (
        "take the {color} {thing} off the {other_color} {other_thing}",
        "unstack the {color} {thing} from the {other_color} one",
        "remove the {color} block from the {other_color} block",
        "lift the {color} {thing} off the {other_color} {other_thing}",
        "take down the {color} {thing} from the {other_color} {other_thing}",
        "put the {color} block beside the {other_color} block",
    )

    @staticmethod
    def target(state: SceneState) -> FloatArray:
        """Return the center of the named cube on top of the other, [N, 3], m."""
        return state.object_position(1) + np.array([0.0, 0.0, ITEM_WIDTH_M])
