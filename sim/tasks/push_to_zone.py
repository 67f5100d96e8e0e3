"""Push the named thing along the table into a zone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.control import FloatArray
from sim.experts import SHUT, Plan, Waypoint, mistaken, moved, stalled, withdrawn
from sim.layout import Layout
from sim.props import Slider, Zones
from sim.props.base import HALF
from sim.props.zones import ZONE_ACROSS
from sim.registry import register
from sim.state import SceneState
from sim.task import Task, distance, nearness
from sim.tasks.placing import LEAVE, TAKE, still
from sim.tasks.pushing import BACK, INSIDE, LOW, beside, goal, mimed, pushed, strayed, to_go, to_goal, way_is_clear
from sim.tasks.sides import SIDES, wrong_side

OFF = ((-0.075, 0.0), (0.0, 0.065), (0.0, -0.065), (-0.1, 0.0))
"""Offsets from the middle of a zone at which a thing is not all within, m."""
ASIDE = 0.1
"""How far beside the middle of a thing the hand passes without touching it, m."""
WHOLE: Plan = pushed()
ACROSS: Plan = WHOLE[:4]
"""Level with the zone, and the hand up again."""


@register
class PushToZone(Task):
    """Come down behind the named thing and push it along the table until all of it is in the zone that is said.

    Left is the robot's left (y > 0). Carrying it there counts as well.
    """

    name = "push_to_zone"
    props = (Zones(), Slider("cube"), Slider("cylinder", shape="cylinder"))
    watched = ("left_zone", "right_zone")
    sides = SIDES
    steps = ("reach", "push")
    max_episode_steps = 140
    templates = (
        "push the {colour} {thing} into the {side} zone",
        "slide the {colour} {thing} to the zone on the {side}",
        "move the {colour} {thing} along the table into the {side} field",
        "shove the {colour} {thing} onto the {side} patch",
    )
    paraphrases = (
        "bring the {colour} {thing} into the {side} zone",
        "push the {colour} {thing} over to the {side}, into the zone",
        "get the {colour} {thing} onto the {side} field",
        "the {colour} {thing} belongs in the {side} zone",
        "slide the {colour} {thing} into the field on the {side}",
        "drive the {colour} {thing} along the table to the {side} zone",
        "nudge the {colour} {thing} into the {side} area",
        "transfer the {colour} {thing} to the {side} area",
    )

    def layout(self, rng: np.random.Generator, start_poses: int) -> Layout:
        """A random start in which neither thing is in the way of the other, to either zone: where they stand says
        nothing about which one is meant."""
        while True:
            layout = super().layout(rng, start_poses)
            zones = [layout.fixtures[0] + (0.0, y) for y in (ZONE_ACROSS, -ZONE_ACROSS)]
            one, two = layout.items[:, :2]
            if all(way_is_clear(*pair, zone) for pair in ((one, two), (two, one)) for zone in zones):
                return layout

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """The named thing as seen from its zone."""
        return (state.object() - goal(state),)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        left, at_start = np.abs(to_go(now)).sum(axis=1), np.abs(to_go(start)).sum(axis=1)
        place, place_at_start = (beside(LOW)(state, state.tool) for state in (now, start))
        ready = distance(now.tool, place) < 0.025
        stage = np.where(ready | (left < at_start - 0.01), 1, 0)
        reach = nearness(distance(now.tool, place) - 0.02, distance(start.tool, place_at_start) - 0.02)
        return stage, np.where(stage == 1, nearness(left - INSIDE, at_start - INSIDE), reach)

    def success(self, now: SceneState) -> np.ndarray:
        off = np.abs(now.object() - goal(now))
        return (off[:, :2] < INSIDE).all(axis=1) & (off[:, 2] < HALF + 0.01)

    def expert(self) -> Plan:
        return WHOLE

    def afterwards(self) -> tuple[Plan, ...]:
        return withdrawn(SHUT)

    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        out = (Waypoint(moved(y=0.12), SHUT, tolerance=0.02), Waypoint(moved(z=-0.09), SHUT, tolerance=0.02))
        return {
            "stall": (
                *(stalled(WHOLE, n) for n in (1, 2, 3, 5, 6)),
                *(still(pushed(x)) for x in (-0.065, -0.075, -0.09, -0.105)),
            ),
            "drop": (
                *(strayed(x) for x in (-0.065, -0.075, -0.09, -0.14)),
                (*ACROSS, to_goal(0.085), to_goal(LOW)),
            ),
            "undo": (
                *((*WHOLE, BACK, *pushed(y=y)) for y in (0.12, -0.12)),
                (*WHOLE, BACK, *TAKE, *out, *LEAVE),
            ),
            "wrong_object": (mistaken(WHOLE), wrong_side(WHOLE), mistaken(wrong_side(WHOLE))),
            "miss": (
                *(mimed(z) for z in (0.075, 0.1)),
                *(mimed(LOW, aside) for aside in (ASIDE, -ASIDE)),
                *(pushed(x, y) for x, y in OFF),
            ),
        }
