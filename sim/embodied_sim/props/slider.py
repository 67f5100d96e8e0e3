"""Items that are pushed along the table rather than picked up."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from embodied_sim.props.prop import Item

_FRICTION = (0.5, 0.005, 0.002)
"""Friction of the item, whatever it stands on: with the table's friction it would tip over instead of sliding."""


@dataclass(frozen=True)
class Slider(Item):
    """Item that slides easily and stops rolling when it lies on its side."""

    def add(self, spec: mujoco.MjSpec) -> None:
        super().add(spec)
        geom = spec.geom(self.name)
        geom.friction, geom.priority, geom.condim = _FRICTION, 1, 6
