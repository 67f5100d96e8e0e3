"""Open the drawer, put the named cube into it, close it: `cube_in_drawer`, its way spelled out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.control import FloatArray
from sim.registry import register
from sim.state import SceneState
from sim.tasks.close_drawer import CLOSED, CloseDrawer
from sim.tasks.common import one_after_another
from sim.tasks.cube_in_drawer import CubeInDrawer, closed
from sim.tasks.open_drawer import OpenDrawer
from sim.tasks.place_in_drawer import PlaceInDrawer

WISHES = (OpenDrawer(), PlaceInDrawer(), CloseDrawer())


@register
class OpenPlaceClose(CubeInDrawer):
    """Open the drawer, pick the named cube and place it inside, close the drawer, each said after the other."""

    name = "open_place_close"
    steps = ("open", "place", "close")
    templates = one_after_another(*WISHES)

    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        opening, placing, _ = WISHES
        opened, placed = opening.success(now), placing.success(now)
        _, out = opening.progress(now, start)
        # The way to the cube begins where the drawer was let go.
        _, inside = placing.progress(now, replace(start, tool=now.points["knob"]))
        stage = np.select([placed, opened], [2, 1], 0)
        return stage, np.select([placed, opened], [closed(now, CLOSED), inside], out)

    def success(self, now: SceneState) -> np.ndarray:
        _, placing, closing = WISHES
        return placing.success(now) & closing.success(now)
