"""A task: where things start, what counts as progress and success, how to do it and how to fail at it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout, sample_layout
from embodied_sim.props import Fixture, Item, Prop
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.state import SceneState
from embodied_sim.waypoints import Plan

SUCCESS_OUTCOME = "success"
"""The outcome of following the expert's plan; the others are the task's failures."""
WRONG_OBJECT_OUTCOME = "wrong_object"
"""The failure that every task has: the right thing done to the wrong object."""
POST_SUCCESS_OUTCOME = "afterwards"
"""The outcome of going on after success in one of the task's ways."""


class Task(ABC):
    """One tabletop task. Stateless: everything is a function of the worlds' state now and at the start."""

    name: ClassVar[str]
    props: ClassVar[tuple[Prop, ...]]
    """What stands on the table."""
    observed_points: ClassVar[tuple[str, ...]] = ()
    """Points of the props that the policy sees, besides the objects."""
    sides: ClassVar[tuple[str, ...]] = ()
    """What `{side}` in a template can be."""
    subtasks: ClassVar[tuple[str, ...]]
    """Names of the ordered steps."""
    max_episode_steps: ClassVar[int]
    """Time limit, control steps of 50 ms."""
    templates: ClassVar[tuple[str, ...]]
    """Phrasings of the instruction; `{color}` and `{thing}` are those of the named object, `{other_color}` and
    `{other_thing}` those of the next, `{side}` the side that is meant."""
    paraphrases: ClassVar[tuple[str, ...]] = ()
    """Further phrasings, which no episode begins with: recordings name them for reward models to learn from."""
    reversed_instructions: ClassVar[tuple[str, ...]] = ()
    """Phrasings of the wish that the last step of this task, played backwards, fulfils; none where nobody would ask for
    it."""
    implied_goals: ClassVar[tuple[str, ...]] = ()
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

    def draw_layout(self, rng: np.random.Generator, num_start_poses: int) -> Layout:
        """A random start."""
        return sample_layout(self.props, self.object_props, len(self.sides), num_start_poses, rng)

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """What the policy sees besides tool, objects, joints and watched points: arrays [N, k]."""
        return ()

    @abstractmethod
    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        """Step under way (int64 [N]) and the share of it that is done (float [N] in [0, 1])."""

    @abstractmethod
    def success(self, now: SceneState) -> np.ndarray:
        """Whether the task is done in this very state, bool [N]."""

    @abstractmethod
    def expert_plan(self) -> Plan:
        """The way to do it."""

    def post_success_plans(self) -> tuple[Plan, ...]:
        """Ways to go on once it is done that leave it done, such as to let go and withdraw; none by default."""
        return ()

    @abstractmethod
    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        """Kind of failure -> ways to fail like that: stall, drop, undo, wrong_object."""

    @property
    def distinguishes_objects(self) -> bool:
        """Whether the instruction tells one object from others like it."""
        return any("{color}" in template for template in self.templates)

    def template_fields(self, layout: Layout) -> dict[str, str]:
        """What the placeholders of the templates stand for."""
        roles = [(layout.colors[i], self.object_props[i].noun) for i in layout.object_order[:2]]
        fields = {f"{prefix}{field}": value for prefix, role in zip(("", "other_"), roles, strict=False)
                 for field, value in zip(("color", "thing"), role, strict=True)}  # fmt: skip
        return {**fields, "side": self.sides[layout.side_index]} if self.sides else fields

    def instruction(self, layout: Layout, phrasing_index: int = 0) -> str:
        """The instruction for an episode that starts like that."""
        return self.format_instructions([self.templates[phrasing_index % len(self.templates)]], layout)[0]

    def goal(self, layout: Layout) -> str:
        """What such an episode wants, in the same words however it is phrased: equal where the same end is meant."""
        return self.instruction(layout)

    def format_instructions(self, templates: Iterable[str], layout: Layout) -> tuple[str, ...]:
        """The phrasings as sentences for an episode that starts like that."""
        fields = self.template_fields(layout)
        return tuple(template.format(**fields) for template in templates)

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        """Bodies that the instruction names, which must be seen at the start."""
        return (self.objects[layout.object_order[0]],)

    def progress(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        """Step under way (int64 [N]) and true step progress (step + share) / steps, float [N] in [0, 1]."""
        subtask, fraction = self.current_subtask(now, start)
        progress = np.clip((subtask + np.clip(fraction, 0.0, 1.0)) / len(self.subtasks), 0.0, 1.0)
        return subtask, np.where(self.success(now), 1.0, progress)


def proximity(distance: FloatArray, start_distance: FloatArray) -> FloatArray:
    """1 when there, 0 as far as at the start or farther."""
    return np.clip(1.0 - distance / np.maximum(start_distance, 1e-6), 0.0, 1.0)


def distance(a: FloatArray, b: FloatArray) -> FloatArray:
    """Euclidean distance of points [N, 3], m."""
    return np.linalg.norm(a - b, axis=1)


def closing_fraction(opening: FloatArray, width: float) -> FloatArray:
    """0 with the fingers open (8 cm), 1 when they have closed to `width`."""
    return np.clip((0.08 - opening) / (0.08 - width), 0.0, 1.0)


def is_grasped(now: SceneState, position: FloatArray, width: float) -> np.ndarray:
    """Whether the fingers are shut on a thing of that width at that point, and stopped by it, bool [N]."""
    is_near = distance(now.tool_pos, position) < ITEM_HALF_SIZE_M + PAD_HALF_WIDTH_M
    return is_near & (np.abs(now.gripper_opening - width) < 0.008)


ITEM_WIDTH_M = 2 * ITEM_HALF_SIZE_M
"""Of an item, m."""
PAD_HALF_WIDTH_M = 0.009
"""Half the width of a finger pad, m: nearer than this to the edge of a cube, pads and cube still overlap."""
