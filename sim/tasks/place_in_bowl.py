"""Put the named thing into the bowl."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, Plan, mistaken, stalled, withdrawn
from sim.props import Bowl, Item
from sim.props.base import HALF
from sim.registry import register
from sim.state import SceneState
from sim.task import Task
from sim.tasks.placing import (
    LEAVE,
    TAKE,
    airs,
    down,
    dropped,
    over,
    pick_and_place,
    put,
    put_back,
    released,
    rests,
    still,
)

INSIDE = 0.05
"""How far from the middle of the bowl a thing on its floor may be, m; its rim lets nothing be farther."""
OUTSIDE = 0.125
"""From the middle of the bowl to that of a thing beside it, m."""


def in_bowl(state: SceneState) -> FloatArray:
    """Where the middle of a thing in the bowl is, [N, 3], m."""
    return state.points["bowl"] + np.array([0.0, 0.0, HALF])


@register
class PlaceInBowl(Task):
    """Reach for the named thing, grasp it, put it down in the bowl and let go."""

    name = "place_in_bowl"
    props = (Bowl(), Item("cube"), Item("other"))
    watched = ("bowl",)
    steps = ("reach", "grasp", "place")
    max_episode_steps = 80
    templates = (
        "put the {colour} {thing} into the bowl",
        "place the {colour} {thing} in the bowl",
        "drop the {colour} {thing} into the bowl",
        "pick up the {colour} {thing} and leave it in the bowl",
    )
    paraphrases = (
        "move the {colour} {thing} into the bowl",
        "the {colour} {thing} goes into the bowl",
        "lay the {colour} {thing} in the bowl",
        "carry the {colour} {thing} over to the bowl and let it go",
        "transfer the {colour} {thing} to the bowl",
        "grasp the {colour} {thing} and put it in the bowl",
        "set the {colour} {thing} down inside the bowl",
        "get the {colour} {thing} into the bowl",
    )
    opposites = (
        "take the {colour} {thing} out of the bowl",
        "get the {colour} {thing} from the bowl",
        "remove the {colour} {thing} from the bowl",
        "lift the {colour} {thing} out of the bowl",
        "pick the {colour} {thing} out of the bowl",
        "empty the {colour} {thing} out of the bowl",
    )

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """The named thing as seen from the bowl."""
        return (state.object() - in_bowl(state),)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        return pick_and_place(now, start, 0, in_bowl(now), in_bowl(start), INSIDE)

    def success(self, now: SceneState) -> np.ndarray:
        return rests(now.object(), in_bowl(now), INSIDE) & released(now, now.object())

    def expert(self) -> Plan:
        return put(in_bowl)

    def afterwards(self) -> tuple[Plan, ...]:
        return withdrawn(OPEN)

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        whole = put(in_bowl)
        beside = ((-OUTSIDE, 0.0), (0.0, -OUTSIDE - 0.01), (-0.1, -0.1))
        return {
            "stall": (
                *(stalled(whole, n) for n in (1, 2, 3, 4, 5, 6)),
                still((*whole[:5], down(in_bowl, above=0.03))),
            ),
            "drop": dropped(in_bowl),
            "undo": (
                put_back(in_bowl),
                (*whole, *TAKE, over(in_bowl, x=-OUTSIDE - 0.03), down(in_bowl, x=-OUTSIDE - 0.03), *LEAVE),
                still((*whole, *TAKE)),
            ),
            "wrong_object": (mistaken(whole),),
            "miss": (*airs(in_bowl), *(put(in_bowl, x, y) for x, y in beside)),
        }
