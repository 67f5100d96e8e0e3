"""How worlds differ from each other beyond their layouts: cameras, light, colours, friction, mass, latency; seeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import mujoco
import numpy as np

from sim.control import FloatArray
from sim.errors import SimError


@dataclass(frozen=True, kw_only=True)
class Randomization:
    """Largest deviations, drawn anew for every episode; 0: none."""

    camera_shift: float = 0.0
    """Of a camera's position along each axis, m."""
    camera_turn: float = 0.0
    """Of a camera about a random axis, rad."""
    light_turn: float = 0.0
    """Of a light's direction about a random axis, rad."""
    brightness: float = 0.0
    """Of a light's brightness, as a share of it."""
    colour: float = 0.0
    """Of each of R, G and B of everything but the objects whose colour is drawn for every episode."""
    friction: float = 0.0
    """Of the sliding friction of every geom, as a factor: between 1 / (1 + friction) and 1 + friction."""
    mass: float = 0.0
    """Of the mass of every item, as a factor likewise."""
    latency: int = 0
    """Of the number of control steps (50 ms) after which an action takes effect."""
    least_camera: float = 0.0
    """Share of `camera_shift` and `camera_turn` that every draw reaches, in [0, 1]: with 0.5 no camera is nearer to its
    place than half of that, along any axis."""
    least_look: float = 0.0
    """The same for `light_turn`, `brightness` and `colour`, before what no light or colour can be is cut off."""

    def __post_init__(self) -> None:
        for item in fields(self):
            if not getattr(self, item.name) >= 0:
                raise SimError(f"randomize.{item.name} must be >= 0, got {getattr(self, item.name)}")
        for name in ("least_camera", "least_look"):
            if getattr(self, name) > 1:
                raise SimError(f"randomize.{name} must be <= 1, got {getattr(self, name)}")

    def draw(self, model: mujoco.MjModel, items: Sequence[int], rng: np.random.Generator) -> Mapping[str, FloatArray]:
        """Model field -> its value in one world. `items`: ids of the bodies whose masses vary.

        Every draw is made whatever is switched on, so that switching one thing off changes no other.
        """
        shift = outwards(rng.uniform(-1, 1, model.cam_pos.shape), self.least_camera)
        turn = rotations(rng, model.ncam, self.camera_turn, self.least_camera)
        light_turn = rotations(rng, model.nlight, self.light_turn, self.least_look)
        light = outwards(rng.uniform(-1, 1, (model.nlight, 1)), self.least_look)
        tint = outwards(rng.uniform(-1, 1, (model.ngeom, 3)), self.least_look)
        grip = rng.uniform(-1, 1, (model.ngeom, 1))
        weight = np.zeros(model.nbody)
        weight[items] = rng.uniform(-1, 1, len(items))
        heavier = (1 + self.mass) ** weight
        rgba, friction = model.geom_rgba.astype(float), model.geom_friction.copy()
        rgba[:, :3] = np.clip(rgba[:, :3] + self.colour * tint, 0, 1)
        friction[:, :1] *= (1 + self.friction) ** grip
        values = {
            "cam_pos": model.cam_pos + self.camera_shift * shift,
            "cam_quat": turned(model.cam_quat, turn),
            "light_dir": rotated(model.light_dir, light_turn),
            "light_diffuse": np.clip(model.light_diffuse * (1 + self.brightness * light), 0, 1),
            "geom_rgba": rgba,
            "geom_friction": friction,
            "body_mass": model.body_mass * heavier,
            "body_inertia": model.body_inertia * heavier[:, None],
        }
        return {name: values[name] for name in self.varied}

    @property
    def varied(self) -> tuple[str, ...]:
        """The model fields that differ between worlds."""
        owners = {
            "cam_pos": self.camera_shift,
            "cam_quat": self.camera_turn,
            "light_dir": self.light_turn,
            "light_diffuse": self.brightness,
            "geom_rgba": self.colour,
            "geom_friction": self.friction,
            "body_mass": self.mass,
            "body_inertia": self.mass,
        }
        return tuple(name for name, amount in owners.items() if amount)


def outwards(deviation: FloatArray, least: float) -> FloatArray:
    """Deviations in [-1, 1] pressed together to those of at least `least`, each with its sign."""
    return np.copysign(least + (1 - least) * np.abs(deviation), deviation)


def rotations(rng: np.random.Generator, count: int, largest: float, least: float = 0.0) -> FloatArray:
    """Unit quaternions [count, 4] about axes drawn from the sphere, by angles of `least * largest` to `largest` rad."""
    axis = rng.standard_normal((count, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    half = 0.5 * largest * outwards(rng.uniform(0, 1, (count, 1)), least)
    return np.concatenate([np.cos(half), np.sin(half) * axis], axis=1)


def turned(quat: FloatArray, by: FloatArray) -> FloatArray:
    """The orientations `quat` [K, 4], each turned in its own frame by `by` [K, 4]."""
    out = np.empty_like(quat)
    for k in range(len(quat)):
        mujoco.mju_mulQuat(out[k], quat[k], by[k])
    return out


def rotated(direction: FloatArray, by: FloatArray) -> FloatArray:
    """The vectors `direction` [K, 3], each rotated by `by` [K, 4]."""
    out = np.empty((len(direction), 3))
    for k in range(len(direction)):
        mujoco.mju_rotVecQuat(out[k], direction[k].astype(float), by[k])
    return out
