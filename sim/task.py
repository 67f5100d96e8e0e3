"""A task: where things start, what counts as progress and success, how to do it and how to fail at it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sim.control import FloatArray
from sim.experts import Plan
from sim.scene import CABINET, COLOURS, CUBE_HALF
from sim.state import SceneState

CUBE_AREA = np.array([[0.36, -0.27], [0.54, -0.02]])
"""Lowest and highest x, y at which a cube may start, m."""
CUBE_GAP = 0.11
"""Least distance between the middles of two cubes at the start, m."""
START_AREA = np.array([[0.36, -0.14, 0.16], [0.5, 0.12, 0.25]])
"""Lowest and highest tool position at which an episode may start, m."""


@dataclass(frozen=True)
class Layout:
    """Where an episode of one world starts."""

    start_pose: int
    """Index into the bank of start poses."""
    cubes: FloatArray
    """[C, 3]: x, y (m) and yaw (rad) of each cube."""
    cabinet: FloatArray
    """[2]: x, y of the cabinet, m."""
    drawer: float
    """How far the drawer is out, m."""
    target: int
    """The cube that the instruction names."""


def sample_layout(rng: np.random.Generator, start_poses: int) -> Layout:
    """A random start: cubes apart from each other, the cabinet within 2 cm, the drawer nearly shut."""
    while True:
        xy = rng.uniform(CUBE_AREA[0], CUBE_AREA[1], size=(len(COLOURS), 2))
        if np.linalg.norm(xy[0] - xy[1]) >= CUBE_GAP:
            break
    return Layout(
        start_pose=int(rng.integers(start_poses)),
        cubes=np.column_stack([xy, rng.uniform(-0.3, 0.3, len(COLOURS))]),
        cabinet=np.array(CABINET) + rng.uniform(-0.02, 0.02, 2),
        drawer=float(rng.uniform(0.0, 0.008)),
        target=int(rng.integers(len(COLOURS))),
    )


class Task(ABC):
    """One tabletop task. Stateless: everything is a function of the worlds' state now and at the start."""

    name: ClassVar[str]
    steps: ClassVar[tuple[str, ...]]
    """Names of the ordered steps."""
    max_episode_steps: ClassVar[int]
    """Time limit, control steps of 50 ms."""
    templates: ClassVar[tuple[str, ...]]
    """Phrasings of the instruction; `{colour}` is the named cube."""

    @abstractmethod
    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        """Step under way (int64 [N]) and the share of it that is done (float [N] in [0, 1])."""

    @abstractmethod
    def success(self, now: SceneState) -> np.ndarray:
        """Whether the task is done in this very state, bool [N]."""

    @abstractmethod
    def expert(self) -> Plan:
        """The way to do it."""

    @abstractmethod
    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        """Kind of failure -> ways to fail like that: stall, drop, undo, wrong_object."""

    @property
    def names_object(self) -> bool:
        """Whether the instruction tells one object from others like it."""
        return any("{colour}" in template for template in self.templates)

    def named_bodies(self, target: int) -> tuple[str, ...]:
        """Bodies that the instruction names, which must be seen at the start."""
        return (list(COLOURS)[target],)

    def instruction(self, target: int, phrasing: int = 0) -> str:
        """The instruction for an episode whose named cube is `target`."""
        return self.templates[phrasing % len(self.templates)].format(colour=list(COLOURS)[target])

    def progress(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        """Step under way (int64 [N]) and true step progress (step + share) / steps, float [N] in [0, 1]."""
        stage, share = self.stage(now, start)
        progress = np.clip((stage + np.clip(share, 0.0, 1.0)) / len(self.steps), 0.0, 1.0)
        return stage, np.where(self.success(now), 1.0, progress)


def nearness(distance: FloatArray, at_start: FloatArray) -> FloatArray:
    """1 when there, 0 as far as at the start or farther."""
    return np.clip(1.0 - distance / np.maximum(at_start, 1e-6), 0.0, 1.0)


def distance(a: FloatArray, b: FloatArray) -> FloatArray:
    """Euclidean distance of points [N, 3], m."""
    return np.linalg.norm(a - b, axis=1)


def closing(opening: FloatArray, width: float) -> FloatArray:
    """0 with the fingers open (8 cm), 1 when they have closed to `width`."""
    return np.clip((0.08 - opening) / (0.08 - width), 0.0, 1.0)


def holds(now: SceneState, point: FloatArray, width: float) -> np.ndarray:
    """Whether the fingers are shut on a thing of that width at that point, and stopped by it, bool [N]."""
    near = distance(now.tool, point) < CUBE_HALF + PAD_HALF
    return near & (np.abs(now.opening - width) < 0.008)


CUBE_WIDTH = 2 * CUBE_HALF
PAD_HALF = 0.009
"""Half the width of a finger pad, m: nearer than this to the edge of a cube, pads and cube still overlap."""
