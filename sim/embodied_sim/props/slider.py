"""Items that are pushed along the table rather than picked up."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from embodied_sim.props.prop import Item

_FRICTION = (0.5, 0.005, 0.002)
"""Of its own, whatever it stands on: with that of the table, as tall as wide, it would tip over instead of sliding."""


@dataclass(frozen=True)
class Slider(Item):
    """An item that slides easily and does not roll on for ever once it lies on its side."""

    def add(self, spec: mujoco.MjSpec) -> None:
        super().add(spec)
        geom = spec.geom(self.name)
        geom.friction, geom.priority, geom.condim = _FRICTION, 1, 6
