"""Open the drawer, put the named cube into it, close it: `cube_in_drawer` with one instruction per subtask."""

from dataclasses import replace

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.registry import register
from embodied_sim.state import SceneState
from embodied_sim.task import select_subtask
from embodied_sim.tasks.cabinet import chain_templates
from embodied_sim.tasks.close_drawer import CLOSED_DRAWER_M, CloseDrawer
from embodied_sim.tasks.cube_in_drawer import CubeInDrawer, closing_progress
from embodied_sim.tasks.open_drawer import OpenDrawer
from embodied_sim.tasks.place_in_drawer import PlaceInDrawer

SUBGOALS = (OpenDrawer(), PlaceInDrawer(), CloseDrawer())


@register
class OpenPlaceClose(CubeInDrawer):
    """Open the drawer, place the named cube inside and close the drawer; the instruction lists the three goals."""

    name = "open_place_close"
    subtasks = ("open", "place", "close")
    templates = chain_templates(*SUBGOALS)

    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        opening, placing, _ = SUBGOALS
        is_open, is_placed = opening.success(now), placing.success(now)
        _, open_progress = opening.progress(now, start)
        # Reaching for the cube starts where the drawer was released.
        _, place_progress = placing.progress(now, replace(start, tool_pos=now.points["knob"]))
        return select_subtask(
            open_progress, (is_open, place_progress), (is_placed, closing_progress(now, CLOSED_DRAWER_M))
        )

    def success(self, now: SceneState) -> np.ndarray:
        _, placing, closing = SUBGOALS
        return placing.success(now) & closing.success(now)
