"""How worlds differ from each other beyond their layouts: cameras, light, colors, friction, mass, latency; seeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import mujoco
import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.sim_errors import SimError


@dataclass(frozen=True, kw_only=True)
class Randomization:
    """Largest deviations, drawn anew for every episode; 0: none."""

    camera_shift: float = 0.0
    """Of a camera's position along each axis, m."""
    camera_rotation: float = 0.0
    """Of a camera about a random axis, rad."""
    light_rotation: float = 0.0
    """Of a light's direction about a random axis, rad."""
    brightness: float = 0.0
    """Of a light's brightness, as a share of it."""
    color: float = 0.0
    """Of each of R, G and B of everything but the objects whose color is drawn for every episode."""
    friction: float = 0.0
    """Of the sliding friction of every geom, as a factor: between 1 / (1 + friction) and 1 + friction."""
    mass: float = 0.0
    """Of the mass of every item, as a factor likewise."""
    latency: int = 0
    """Of the number of control steps (50 ms) after which an action takes effect."""
    min_camera_fraction: float = 0.0
    """Share of `camera_shift` and `camera_turn` that every draw reaches, in [0, 1]: with 0.5 no camera is nearer to its
    place than half of that, along any axis."""
    min_appearance_fraction: float = 0.0
    """The same for `light_turn`, `brightness` and `color`, before what no light or color can be is cut off."""

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
        """Model field -> its value in one world. `items`: ids of the bodies whose masses vary.

        Every draw is made whatever is switched on, so that switching one thing off changes no other.
        """
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
            "cam_quat": rotate_quaternions(model.cam_quat, camera_rotation),
            "light_dir": rotate_vectors(model.light_dir, light_rotation),
            "light_diffuse": np.clip(model.light_diffuse * (1 + self.brightness * light_scale), 0, 1),
            "geom_rgba": rgba,
            "geom_friction": friction,
            "body_mass": model.body_mass * mass_scale,
            "body_inertia": model.body_inertia * mass_scale[:, None],
        }
        return {name: values[name] for name in self.varied_fields}

    @property
    def varied_fields(self) -> tuple[str, ...]:
        """The model fields that differ between worlds."""
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
    """Deviations in [-1, 1] pressed together to those of at least `least`, each with its sign."""
    return np.copysign(min_fraction + (1 - min_fraction) * np.abs(deviation), deviation)


def sample_rotations(rng: np.random.Generator, count: int, max_angle: float, min_fraction: float = 0.0) -> FloatArray:
    """Unit quaternions [count, 4] about axes drawn from the sphere, by angles of `least * largest` to `largest` rad."""
    axis = rng.standard_normal((count, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    half_angle = 0.5 * max_angle * apply_min_fraction(rng.uniform(0, 1, (count, 1)), min_fraction)
    return np.concatenate([np.cos(half_angle), np.sin(half_angle) * axis], axis=1)


def rotate_quaternions(quat: FloatArray, rotation: FloatArray) -> FloatArray:
    """The orientations `quat` [K, 4], each turned in its own frame by `by` [K, 4]."""
    result = np.empty_like(quat)
    for k in range(len(quat)):
        mujoco.mju_mulQuat(result[k], quat[k], rotation[k])
    return result


def rotate_vectors(direction: FloatArray, rotation: FloatArray) -> FloatArray:
    """The vectors `direction` [K, 3], each rotated by `by` [K, 4]."""
    result = np.empty((len(direction), 3))
    for k in range(len(direction)):
        mujoco.mju_rotVecQuat(result[k], direction[k].astype(float), rotation[k])
    return result
