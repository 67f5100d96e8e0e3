"""Open the drawer, put the named cube into it, close it: `cube_in_drawer`, its way spelled out."""

from __future__ import annotations

from sim.registry import register
from sim.tasks.close_drawer import CloseDrawer
from sim.tasks.common import one_after_another
from sim.tasks.cube_in_drawer import CubeInDrawer
from sim.tasks.open_drawer import OpenDrawer
from sim.tasks.place_in_drawer import PlaceInDrawer


@register
class OpenPlaceClose(CubeInDrawer):
    """Open the drawer, pick the named cube, place it inside, close the drawer, each said after the other."""

    name = "open_place_close"
    templates = one_after_another(OpenDrawer(), PlaceInDrawer(), CloseDrawer())
