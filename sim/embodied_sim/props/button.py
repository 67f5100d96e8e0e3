"""A push button on a box; a spring returns its cap."""

from dataclasses import dataclass

import mujoco

from embodied_sim.palette import PALETTE
from embodied_sim.props.prop import Fixture, add_box

BUTTON_TRAVEL_M = 0.03  # travel of the cap, m
BUTTON_REST_Z_M = 0.075  # height of the top of the cap at rest, m

_BASE_HALF_SIZE_M = (0.045, 0.045, 0.015)
_CAP_HALF_WIDTH_M = 0.027
_BASE_RGBA = (0.75, 0.75, 0.78, 1.0)


@dataclass(frozen=True)
class Button(Fixture):
    """Button. Point: the button's name, the top of the cap. Joint: the same name, m; 0 is at rest."""

    name: str
    nominal_xy: tuple[float, float]
    color: str | None = None

    noun = "button"

    @property
    def point_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,)

    @property
    def joint_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,)

    @property
    def colored_geoms(self) -> tuple[str, ...]:  # type: ignore[override]
        return (f"{self.name}_cap",)

    def add(self, spec: mujoco.MjSpec) -> None:
        base = self.add_body(spec)
        add_box(base, (0, 0, _BASE_HALF_SIZE_M[2]), _BASE_HALF_SIZE_M, _BASE_RGBA)
        # At rest, the cap reaches from the top of the base to its own top; pressed, it enters the base.
        half_height = (BUTTON_REST_Z_M - 2 * _BASE_HALF_SIZE_M[2]) / 2
        cap_name, size = f"{self.name}_cap", (_CAP_HALF_WIDTH_M, _CAP_HALF_WIDTH_M, half_height)
        cap = base.add_body(name=cap_name, pos=(0, 0, BUTTON_REST_Z_M - half_height), gravcomp=1)
        cap.add_joint(
            name=self.name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=(0, 0, -1), range=(0, BUTTON_TRAVEL_M),
            stiffness=150.0, damping=3.0, armature=0.05,
        )  # fmt: skip
        add_box(cap, (0, 0, 0), size, PALETTE[self.color or "red"], name=cap_name, mass=0.05)
        cap.add_site(name=self.name, pos=(0, 0, half_height), size=(0.004, 0, 0), group=5)
