"""A lever that turns flat above its base, like a dial, and stays where it is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco

from sim.props.base import Fixture, box

ARM_Z = 0.065
"""Height of the middle of the arm, m."""
HALF_WIDTH = 0.01
"""Half the width of the arm, m."""

_REACH = 0.12
_BASE = (0.06, 0.06, 0.02)
_WOOD = (0.62, 0.45, 0.28, 1.0)
_STEEL = (0.8, 0.8, 0.82, 1.0)
_ARM = (0.95, 0.5, 0.1, 1.0)


@dataclass(frozen=True)
class Lever(Fixture):
    """Points: `pivot`, at the height of the arm, and `handle`, at its end. Joint: `lever`, rad, 0 when it points at
    the robot, anticlockwise from above."""

    name = "lever"
    place = (0.6, 0.16)
    points = ("pivot", "handle")
    joints = ("lever",)
    angle: tuple[float, float] = (-0.15, 0.15)
    """Where the lever may be at the start, rad."""

    @property
    def starts(self) -> Mapping[str, tuple[float, float]]:  # type: ignore[override]
        return {"lever": self.angle}

    def add(self, spec: mujoco.MjSpec) -> None:
        base = self.body(spec)
        box(base, (0, 0, _BASE[2]), _BASE, _WOOD)
        arm = base.add_body(name="lever_arm", pos=(0, 0, ARM_Z))
        arm.add_joint(
            name="lever", type=mujoco.mjtJoint.mjJNT_HINGE, axis=(0, 0, 1), range=(-1.75, 1.75),
            damping=0.05, frictionloss=0.15, armature=0.005,
        )  # fmt: skip
        box(arm, (0, 0, -0.004), (0.02, 0.02, 0.02), _STEEL, mass=0.1)
        box(arm, (-_REACH / 2, 0, 0), (_REACH / 2, HALF_WIDTH, 0.012), _ARM, mass=0.1)
        box(arm, (-_REACH, 0, 0), (0.014, 0.018, 0.022), _ARM, mass=0.05)
        arm.add_site(name="handle", pos=(-_REACH, 0, 0), size=(0.004, 0, 0), group=5)
        base.add_site(name="pivot", pos=(0, 0, ARM_Z), size=(0.004, 0, 0), group=5)
