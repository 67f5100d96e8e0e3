"""Seeded domain randomization: cameras, light, colors, friction, mass and action latency."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.sim_errors import SimError

if TYPE_CHECKING:
    import mujoco


@dataclass(frozen=True, kw_only=True)
class Randomization:
    """Maximum deviations, drawn again for every episode; 0: none."""

    camera_shift: float = 0.0  # camera position along each axis, m
    camera_rotation: float = 0.0  # camera rotation about a random axis, rad
    light_rotation: float = 0.0  # rotation of a light's direction about a random axis, rad
    brightness: float = 0.0  # brightness of a light, relative
    color: float = 0.0  # R, G and B of every geom, except objects whose color the episode draws
    friction: float = 0.0  # sliding friction of every geom: a factor between 1 / (1 + friction) and 1 + friction
    mass: float = 0.0  # mass of every item: a factor between 1 / (1 + mass) and 1 + mass
    latency: int = 0  # control steps (50 ms) after which an action takes effect
    min_camera_fraction: float = 0.0
    """Minimum of camera deviations as a fraction of `camera_shift` and `camera_rotation`, in [0, 1]."""
    min_appearance_fraction: float = 0.0
    """The same for `light_rotation`, `brightness` and `color`, before values are clipped to their range."""

    def __post_init__(self) -> None:
        for item in fields(self):
            if not getattr(self, item.name) >= 0:
                raise SimError(f"randomize.{item.name} must be >= 0, got {getattr(self, item.name)}")
        for name in ("min_camera_fraction", "min_appearance_fraction"):
            if getattr(self, name) > 1:
                raise SimError(f"randomize.{name} must be <= 1, got {getattr(self, name)}")

    def sample(
        self, model: mujoco.MjModel, item_body_ids: Sequence[int], rng: np.random.Generator
    ) -> Mapping[str, FloatArray]:
        """Draw the randomized model fields of one world: field -> value. The mass varies of the bodies `item_body_ids`.

        All draws are made regardless of the settings, so that disabling one deviation changes no other.
        """
        import mujoco  # the extra `sim`; configs are read without it

        camera_shift = apply_min_fraction(rng.uniform(-1, 1, model.cam_pos.shape), self.min_camera_fraction)
        camera_rotation = sample_rotations(rng, model.ncam, self.camera_rotation, self.min_camera_fraction)
        light_rotation = sample_rotations(rng, model.nlight, self.light_rotation, self.min_appearance_fraction)
        light_scale = apply_min_fraction(rng.uniform(-1, 1, (model.nlight, 1)), self.min_appearance_fraction)
        color_shift = apply_min_fraction(rng.uniform(-1, 1, (model.ngeom, 3)), self.min_appearance_fraction)
        friction_exponent = rng.uniform(-1, 1, (model.ngeom, 1))
        mass_exponent = np.zeros(model.nbody)
        mass_exponent[item_body_ids] = rng.uniform(-1, 1, len(item_body_ids))
        mass_scale = (1 + self.mass) ** mass_exponent
        rgba, friction = model.geom_rgba.astype(float), model.geom_friction.copy()
        rgba[:, :3] = np.clip(rgba[:, :3] + self.color * color_shift, 0, 1)
        friction[:, :1] *= (1 + self.friction) ** friction_exponent
        values = {
            "cam_pos": model.cam_pos + self.camera_shift * camera_shift,
            "cam_quat": rotate_rows(mujoco.mju_mulQuat, model.cam_quat, camera_rotation),
            "light_dir": rotate_rows(mujoco.mju_rotVecQuat, model.light_dir, light_rotation),
            "light_diffuse": np.clip(model.light_diffuse * (1 + self.brightness * light_scale), 0, 1),
            "geom_rgba": rgba,
            "geom_friction": friction,
            "body_mass": model.body_mass * mass_scale,
            "body_inertia": model.body_inertia * mass_scale[:, None],
        }
        return {name: values[name] for name in self.varied_fields}

    @property
    def varied_fields(self) -> tuple[str, ...]:
        """Return the names of the model fields that differ between worlds."""
        amounts = {
            "cam_pos": self.camera_shift,
            "cam_quat": self.camera_rotation,
            "light_dir": self.light_rotation,
            "light_diffuse": self.brightness,
            "geom_rgba": self.color,
            "geom_friction": self.friction,
            "body_mass": self.mass,
            "body_inertia": self.mass,
        }
        return tuple(name for name, amount in amounts.items() if amount)


def apply_min_fraction(deviation: FloatArray, min_fraction: float) -> FloatArray:
    """Rescale the magnitude of deviations in [-1, 1] to [min_fraction, 1]; signs are kept."""
    return np.copysign(min_fraction + (1 - min_fraction) * np.abs(deviation), deviation)


def sample_rotations(rng: np.random.Generator, count: int, max_angle: float, min_fraction: float = 0.0) -> FloatArray:
    """Draw unit quaternions [count, 4]: random axes, angles from `min_fraction * max_angle` to `max_angle` rad."""
    axis = rng.standard_normal((count, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    half_angle = 0.5 * max_angle * apply_min_fraction(rng.uniform(0, 1, (count, 1)), min_fraction)
    return np.concatenate([np.cos(half_angle), np.sin(half_angle) * axis], axis=1)


def rotate_rows(
    rotate: Callable[[FloatArray, FloatArray, FloatArray], None], values: FloatArray, rotation: FloatArray
) -> FloatArray:
    """Return the rows of `values` [K, 3 or 4] rotated by `rotation` [K, 4]; `rotate` is a function of MuJoCo."""
    result = np.empty(values.shape)
    for rotated, value, quat in zip(result, values.astype(float), rotation, strict=True):
        rotate(rotated, value, quat)
    return result
