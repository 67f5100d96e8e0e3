"""A task: where things start, what counts as progress and success, how to do it and how to fail at it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from sim.control import FloatArray
from sim.experts import Plan
from sim.layout import Layout, sample_layout
from sim.props import Fixture, Item, Prop
from sim.props.base import HALF
from sim.state import SceneState

SUCCESS = "success"
"""The outcome of following the expert's plan; the others are the task's failures."""
WRONG_OBJECT = "wrong_object"
"""The failure that every task has: the right thing done to the wrong object."""
AFTERWARDS = "afterwards"
"""The outcome of going on after success in one of the task's ways."""


class Task(ABC):
    """One tabletop task. Stateless: everything is a function of the worlds' state now and at the start."""

    name: ClassVar[str]
    props: ClassVar[tuple[Prop, ...]]
    """What stands on the table."""
    watched: ClassVar[tuple[str, ...]] = ()
    """Points of the props that the policy sees, besides the objects."""
    sides: ClassVar[tuple[str, ...]] = ()
    """What `{side}` in a template can be."""
    steps: ClassVar[tuple[str, ...]]
    """Names of the ordered steps."""
    max_episode_steps: ClassVar[int]
    """Time limit, control steps of 50 ms."""
    templates: ClassVar[tuple[str, ...]]
    """Phrasings of the instruction; `{colour}` and `{thing}` are those of the named object, `{other_colour}` and
    `{other_thing}` those of the next, `{side}` the side that is meant."""
    paraphrases: ClassVar[tuple[str, ...]] = ()
    """Further phrasings, which no episode begins with: recordings name them for reward models to learn from."""
    opposites: ClassVar[tuple[str, ...]] = ()
    """Phrasings of the wish that the last step of this task, played backwards, fulfils; none where nobody would ask for
    it."""
    fulfils: ClassVar[tuple[str, ...]] = ()
    """Goals of other tasks that are fulfilled whenever this one is done."""

    @property
    def objects(self) -> tuple[str, ...]:
        """Names of the props, each an item or with a point of that name, that an episode can be about."""
        return tuple(item.name for item in self.items)

    @property
    def object_props(self) -> tuple[Prop, ...]:
        """The props of these names, in the same order."""
        return tuple(prop for name in self.objects for prop in self.props if prop.name == name)

    @property
    def items(self) -> tuple[Item, ...]:
        """The props that can be picked up."""
        return tuple(prop for prop in self.props if isinstance(prop, Item))

    @property
    def fixtures(self) -> tuple[Fixture, ...]:
        """The props that keep their place."""
        return tuple(prop for prop in self.props if isinstance(prop, Fixture))

    def layout(self, rng: np.random.Generator, start_poses: int) -> Layout:
        """A random start."""
        return sample_layout(self.props, self.object_props, len(self.sides), start_poses, rng)

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """What the policy sees besides tool, objects, joints and watched points: arrays [N, k]."""
        return ()

    @abstractmethod
    def stage(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        """Step under way (int64 [N]) and the share of it that is done (float [N] in [0, 1])."""

    @abstractmethod
    def success(self, now: SceneState) -> np.ndarray:
        """Whether the task is done in this very state, bool [N]."""

    @abstractmethod
    def expert(self) -> Plan:
        """The way to do it."""

    def afterwards(self) -> tuple[Plan, ...]:
        """Ways to go on once it is done that leave it done, such as to let go and withdraw; none by default."""
        return ()

    @abstractmethod
    def failures(self) -> Mapping[str, tuple[Plan, ...]]:
        """Kind of failure -> ways to fail like that: stall, drop, undo, wrong_object."""

    @property
    def names_object(self) -> bool:
        """Whether the instruction tells one object from others like it."""
        return any("{colour}" in template for template in self.templates)

    def words(self, layout: Layout) -> dict[str, str]:
        """What the placeholders of the templates stand for."""
        roles = [(layout.colours[i], self.object_props[i].noun) for i in layout.order[:2]]
        named = {f"{who}{what}": word for who, role in zip(("", "other_"), roles, strict=False)
                 for what, word in zip(("colour", "thing"), role, strict=True)}  # fmt: skip
        return {**named, "side": self.sides[layout.side]} if self.sides else named

    def instruction(self, layout: Layout, phrasing: int = 0) -> str:
        """The instruction for an episode that starts like that."""
        return self.told([self.templates[phrasing % len(self.templates)]], layout)[0]

    def goal(self, layout: Layout) -> str:
        """What such an episode wants, in the same words however it is phrased: equal where the same end is meant."""
        return self.instruction(layout)

    def told(self, phrasings: Iterable[str], layout: Layout) -> tuple[str, ...]:
        """The phrasings as sentences for an episode that starts like that."""
        words = self.words(layout)
        return tuple(phrasing.format(**words) for phrasing in phrasings)

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        """Bodies that the instruction names, which must be seen at the start."""
        return (self.objects[layout.order[0]],)

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
    near = distance(now.tool, point) < HALF + PAD_HALF
    return near & (np.abs(now.opening - width) < 0.008)


WIDTH = 2 * HALF
"""Of an item, m."""
PAD_HALF = 0.009
"""Half the width of a finger pad, m: nearer than this to the edge of a cube, pads and cube still overlap."""
