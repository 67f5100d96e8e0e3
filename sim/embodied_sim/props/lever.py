"""A lever that turns horizontally above its base, like a dial, and keeps its angle."""

from dataclasses import dataclass
from types import MappingProxyType

import mujoco

from embodied_sim.props.prop import Fixture, add_box

LEVER_ARM_Z_M = 0.065  # height of the center of the arm, m
LEVER_HALF_WIDTH_M = 0.01  # half width of the arm, m

_ARM_LENGTH_M = 0.12
_BASE_HALF_SIZE_M = (0.06, 0.06, 0.02)
_WOOD_RGBA = (0.62, 0.45, 0.28, 1.0)
_STEEL_RGBA = (0.8, 0.8, 0.82, 1.0)
_ARM_RGBA = (0.95, 0.5, 0.1, 1.0)


@dataclass(frozen=True)
class Lever(Fixture):
    """Lever. Points: `pivot`, at the height of the arm, and `handle`, at its end.

    Joint: `lever`, rad; 0 points at the robot, positive is anticlockwise viewed from above.
    """

    name = "lever"
    nominal_xy = (0.6, 0.16)
    point_names = ("pivot", "handle")
    joint_names = mirrored_joint_names = ("lever",)
    joint_start_ranges = MappingProxyType({"lever": (-0.15, 0.15)})

    def add(self, spec: mujoco.MjSpec) -> None:
        base = self.add_body(spec)
        add_box(base, (0, 0, _BASE_HALF_SIZE_M[2]), _BASE_HALF_SIZE_M, _WOOD_RGBA)
        arm = base.add_body(name="lever_arm", pos=(0, 0, LEVER_ARM_Z_M))
        arm.add_joint(
            name="lever", type=mujoco.mjtJoint.mjJNT_HINGE, axis=(0, 0, 1), range=(-1.75, 1.75),
            damping=0.05, frictionloss=0.15, armature=0.005,
        )  # fmt: skip
        add_box(arm, (0, 0, -0.004), (0.02, 0.02, 0.02), _STEEL_RGBA, mass=0.1)
        add_box(arm, (-_ARM_LENGTH_M / 2, 0, 0), (_ARM_LENGTH_M / 2, LEVER_HALF_WIDTH_M, 0.012), _ARM_RGBA, mass=0.1)
        add_box(arm, (-_ARM_LENGTH_M, 0, 0), (0.014, 0.018, 0.022), _ARM_RGBA, mass=0.05)
        arm.add_site(name="handle", pos=(-_ARM_LENGTH_M, 0, 0), size=(0.004, 0, 0), group=5)
        base.add_site(name="pivot", pos=(0, 0, LEVER_ARM_Z_M), size=(0.004, 0, 0), group=5)
