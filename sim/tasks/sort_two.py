"""Put the named thing into one tray and the other thing into the other tray."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import OPEN, Plan, mistaken, stalled, withdrawn
from sim.layout import Layout
from sim.props import Item, Trays
from sim.props.base import HALF
from sim.registry import register
from sim.state import SceneState
from sim.task import Task
from sim.tasks.placing import TAKE, airs, down, dropped, pick_and_place, put, put_back, released, rests, still
from sim.tasks.sides import SIDES, at_side, wrong_side

INSIDE = 0.06
"""How far from the middle of its tray a thing may lie, m."""


def in_tray(state: SceneState, *, other: bool = False) -> FloatArray:
    """Where the middle of a thing in the tray that is meant, or in the other one, is, [N, 3], m."""
    return at_side(state, "tray", other=other) + np.array([0.0, 0.0, HALF])


def then_other(plan: Plan) -> Plan:
    """What the plan does to the named thing, done to the other thing and the other tray after the first is sorted."""
    return (*FIRST, *mistaken(wrong_side(plan)))


FIRST: Plan = put(in_tray)
WHOLE: Plan = then_other(FIRST)


@register
class SortTwo(Task):
    """Put the named thing into the tray on the side that is said and the other thing into the other tray.

    Left is the robot's left (y > 0).
    """

    name = "sort_two"
    props = (Trays(), Item("cube"), Item("other"))
    watched = ("left_tray", "right_tray")
    sides = SIDES
    steps = ("reach first", "grasp first", "place first", "reach second", "grasp second", "place second")
    max_episode_steps = 180
    templates = (
        "put the {colour} {thing} into the {side} tray and the {other_colour} {other_thing} into the other tray",
        "sort: the {colour} {thing} goes into the {side} tray, the {other_colour} {other_thing} into the other one",
        "first place the {colour} {thing} in the {side} tray, then the {other_colour} {other_thing} in the other",
        "{colour} {thing} into the tray on the {side}, {other_colour} {other_thing} into the opposite tray",
    )
    paraphrases = (
        "place the {colour} {thing} in the {side} tray and the {other_colour} {other_thing} in the other one",
        "sort the {colour} {thing} to the {side} and the {other_colour} {other_thing} to the other tray",
        "the {colour} {thing} belongs in the {side} tray, the {other_colour} {other_thing} in the other tray",
        "{side} tray: the {colour} {thing}; other tray: the {other_colour} {other_thing}",
        "move the {colour} {thing} to the {side} tray and then the {other_colour} {other_thing} to the other",
        "clear the table: the {colour} {thing} to the {side}, the {other_colour} {other_thing} to the other side",
        "put the {colour} {thing} in the tray on the {side} and the {other_colour} {other_thing} in the other tray",
        "into the {side} tray with the {colour} {thing}, into the other with the {other_colour} {other_thing}",
    )

    def goal(self, layout: Layout) -> str:
        """The same whichever of the two is named first."""
        words = self.words(layout)
        things = [f"{words[f'{who}colour']} {words[f'{who}thing']}" for who in ("", "other_")]
        left, right = things if words["side"] == SIDES[0] else reversed(things)
        return f"put the {left} into the left tray and the {right} into the right tray"

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Both things as seen from where they belong."""
        return (state.object() - in_tray(state), state.object(1) - in_tray(state, other=True))

    def sorted(self, now: SceneState, role: int) -> np.ndarray:
        """Whether the thing in that role lies in its tray, let go of, bool [N]."""
        thing = now.object(role)
        return rests(thing, in_tray(now, other=role == 1), INSIDE) & released(now, thing)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        first, second = (
            pick_and_place(now, start, role, in_tray(now, other=other), in_tray(start, other=other), INSIDE)
            for role, other in ((0, False), (1, True))
        )
        done = self.sorted(now, 0)
        return np.where(done, 3 + second[0], first[0]), np.where(done, second[1], first[1])

    def success(self, now: SceneState) -> np.ndarray:
        return self.sorted(now, 0) & self.sorted(now, 1)

    def expert(self) -> Plan:
        return WHOLE

    def afterwards(self) -> tuple[Plan, ...]:
        return withdrawn(OPEN)

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        take_back = (*TAKE, *put_back(in_tray)[len(FIRST) + len(TAKE) :])
        high = still((*FIRST[:5], down(in_tray, above=0.04)))
        near = (*put(in_tray, -0.13, 0.0),)
        return {
            "stall": (*(stalled(WHOLE, n) for n in (2, 4, 6, 8, 9, 11, 13, 14)), high, then_other(high)),
            "drop": (*dropped(in_tray), *map(then_other, dropped(in_tray))),
            "undo": (
                (*FIRST, *take_back),
                (*WHOLE, *take_back),
                then_other((*FIRST, *take_back)),
                still((*WHOLE, *TAKE)),
            ),
            "wrong_object": (
                wrong_side(WHOLE),
                mistaken(FIRST),
                (*put(in_tray, x=-0.035), *mistaken(put(in_tray, x=0.035))),
            ),
            "miss": (
                *airs(in_tray),
                *map(then_other, airs(in_tray)),
                (*near, *WHOLE[len(FIRST) :]),
                then_other(near),
            ),
        }
