"""Put the named cube on top of the other one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, SHUT, Plan, Waypoint, mistaken, moved, stalled, withdrawn
from sim.props import Item
from sim.registry import register
from sim.state import SceneState
from sim.task import WIDTH, Task
from sim.tasks.placing import TAKE, airs, down, dropped, pick_and_place, put, put_back, released, rests, still

ON_TOP = 0.022
"""How far the middles of the two cubes may be from one line, m; at 2.5 cm the upper one tips over."""
NEXT_TO = 0.056
"""From the middle of a cube to that of one that stands next to it, m."""


def on_top(state: SceneState) -> FloatArray:
    """Where the middle of the named cube is when it stands on the other, [N, 3], m."""
    return state.object(1) + np.array([0.0, 0.0, WIDTH])


@register
class StackCubes(Task):
    """Reach for the named cube, grasp it, put it down on the other and let go."""

    name = "stack_cubes"
    props = (Item("cube"), Item("other"))
    steps = ("reach", "grasp", "place")
    max_episode_steps = 75
    templates = (
        "put the {colour} {thing} on top of the {other_colour} {other_thing}",
        "stack the {colour} {thing} on the {other_colour} one",
        "place the {colour} block onto the {other_colour} block",
        "build a tower: the {colour} {thing} on the {other_colour} {other_thing}",
    )
    paraphrases = (
        "set the {colour} {thing} on the {other_colour} {other_thing}",
        "the {colour} {thing} goes on top of the {other_colour} one",
        "pile the {colour} {thing} onto the {other_colour} {other_thing}",
        "lay the {colour} block on the {other_colour} block",
        "pick up the {colour} {thing} and put it on the {other_colour} {other_thing}",
        "make a stack with the {colour} {thing} on the {other_colour} {other_thing}",
        "rest the {colour} block on top of the {other_colour} block",
        "move the {colour} {thing} onto the {other_colour} one",
    )
    opposites = (
        "take the {colour} {thing} off the {other_colour} {other_thing}",
        "unstack the {colour} {thing} from the {other_colour} one",
        "remove the {colour} block from the {other_colour} block",
        "lift the {colour} {thing} off the {other_colour} {other_thing}",
        "take down the {colour} {thing} from the {other_colour} {other_thing}",
        "put the {colour} block beside the {other_colour} block",
    )

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """The named cube as seen from where it belongs."""
        return (state.object() - on_top(state),)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        return pick_and_place(now, start, 0, on_top(now), on_top(start), ON_TOP)

    def success(self, now: SceneState) -> np.ndarray:
        return rests(now.object(), on_top(now), ON_TOP) & released(now, now.object())

    def expert(self) -> Plan:
        return put(on_top)

    def afterwards(self) -> tuple[Plan, ...]:
        return withdrawn(OPEN)

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        whole = put(on_top)
        edges = ((-NEXT_TO, 0.0), (NEXT_TO, 0.0))
        tips = ((0.034, 0.0), (-0.034, 0.0), (0.0, 0.034))
        swept = tuple(
            Waypoint(moved(y=y, z=z), SHUT, tolerance=0.02) for y, z in ((0.1, 0.0), (0.0, -0.1), (-0.2, 0.0))
        )
        return {
            "stall": (
                *(stalled(whole, n) for n in (1, 2, 3, 4, 5, 6)),
                still((*whole[:5], down(on_top, above=0.03))),
            ),
            "drop": dropped(on_top),
            "undo": (
                put_back(on_top),
                (*whole, *swept),
                still((*whole, *TAKE)),
            ),
            "wrong_object": (mistaken(whole),),
            "miss": (*airs(on_top), *(put(on_top, x, y) for x, y in (*edges, *tips))),
        }
