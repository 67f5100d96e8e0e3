"""Base class of tasks: start, progress, success, expert plan and failure plans."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout, sample_layout
from embodied_sim.props import Fixture, Item, Prop
from embodied_sim.props.prop import ITEM_HALF_SIZE_M
from embodied_sim.state import SceneState
from embodied_sim.waypoints import Plan

SUCCESS_OUTCOME = "success"
"""Outcome of the expert plan; the others are the task's failures."""
WRONG_OBJECT_OUTCOME = "wrong_object"
"""Failure that every task has: the right action on the wrong object."""
POST_SUCCESS_OUTCOME = "post_success"
"""Outcome of a plan that continues after success."""


class Task(ABC):
    """One tabletop task. Stateless: everything is a function of the current state and the start state."""

    name: ClassVar[str]
    props: ClassVar[tuple[Prop, ...]]
    """Props on the table."""
    observed_points: ClassVar[tuple[str, ...]] = ()
    """Points of the props that the policy observes, in addition to the objects."""
    sides: ClassVar[tuple[str, ...]] = ()
    """Values of `{side}` in a template."""
    subtasks: ClassVar[tuple[str, ...]]
    """Names of the ordered subtasks."""
    max_episode_steps: ClassVar[int]
    """Time limit, control steps of 50 ms."""
    templates: ClassVar[tuple[str, ...]]
    """Phrasings of the instruction. `{color}` and `{thing}` describe the named object, `{other_color}` and
    `{other_thing}` the next one; `{side}` is the target side."""
    paraphrases: ClassVar[tuple[str, ...]] = ()
    """Further phrasings that no episode uses; recordings list them as training data for reward models."""
    reversed_instructions: ClassVar[tuple[str, ...]] = ()
    """Instructions that the last subtask fulfills when played backwards; empty if there is no natural one."""
    implied_goals: ClassVar[tuple[str, ...]] = ()
    """Goals of other tasks that are fulfilled whenever this task is done."""

    @property
    def objects(self) -> tuple[str, ...]:
        """Return the names of the items or points that an instruction can name."""
        return tuple(item.name for item in self.items)

    @property
    def object_props(self) -> tuple[Prop, ...]:
        """Return the props of `objects`, in the same order."""
        return tuple(prop for name in self.objects for prop in self.props if prop.name == name)

    @property
    def items(self) -> tuple[Item, ...]:
        """Return the props that can be picked up."""
        return tuple(prop for prop in self.props if isinstance(prop, Item))

    @property
    def fixtures(self) -> tuple[Fixture, ...]:
        """Return the props that do not move."""
        return tuple(prop for prop in self.props if isinstance(prop, Fixture))

    def draw_layout(self, rng: np.random.Generator, num_start_poses: int) -> Layout:
        """Draw a random start."""
        return sample_layout(self.props, self.object_props, len(self.sides), num_start_poses, rng)

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return further observation columns, arrays [N, k]; none by default."""
        return ()

    @abstractmethod
    def current_subtask(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        """Return the current subtask (int64 [N]) and its completed fraction (float [N] in [0, 1])."""

    @abstractmethod
    def success(self, now: SceneState) -> np.ndarray:
        """Return whether the task is done in this state, bool [N]."""

    @abstractmethod
    def expert_plan(self) -> Plan:
        """Return the plan that solves the task."""

    def post_success_plans(self) -> tuple[Plan, ...]:
        """Return continuations after success that keep the task done, such as retreating; none by default."""
        return ()

    @abstractmethod
    def failure_plans(self) -> Mapping[str, tuple[Plan, ...]]:
        """Return kind of failure (stall, drop, undo, wrong_object, ...) -> plans that fail in that way."""

    @property
    def distinguishes_objects(self) -> bool:
        """Whether the instruction distinguishes an object from similar ones."""
        return any("{color}" in template for template in self.templates)

    def template_fields(self, layout: Layout) -> dict[str, str]:
        """Return the values of the templates' placeholders."""
        fields = {}
        for prefix, index in zip(("", "other_"), layout.object_order, strict=False):
            fields[f"{prefix}color"] = layout.colors[index]
            fields[f"{prefix}thing"] = self.object_props[index].noun
        return {**fields, "side": self.sides[layout.side_index]} if self.sides else fields

    def instruction(self, layout: Layout, phrasing_index: int = 0) -> str:
        """Return the instruction of an episode with that layout."""
        return self.format_instructions([self.templates[phrasing_index % len(self.templates)]], layout)[0]

    def goal(self, layout: Layout) -> str:
        """Return a canonical instruction: equal for episodes with the same goal, whatever their phrasing."""
        return self.instruction(layout)

    def format_instructions(self, templates: Iterable[str], layout: Layout) -> tuple[str, ...]:
        """Fill in templates for an episode with that layout."""
        fields = self.template_fields(layout)
        return tuple(template.format(**fields) for template in templates)

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        """Return the bodies that the instruction names; they must be visible at the start."""
        return (self.objects[layout.object_order[0]],)

    def progress(self, now: SceneState, start: SceneState) -> tuple[np.ndarray, FloatArray]:
        """Return the current subtask (int64 [N]) and the true progress (float [N] in [0, 1]).

        Progress is (subtask + fraction) / number of subtasks, and 1 on success.
        """
        subtask, fraction = self.current_subtask(now, start)
        progress = np.clip((subtask + np.clip(fraction, 0.0, 1.0)) / len(self.subtasks), 0.0, 1.0)
        return subtask, np.where(self.success(now), 1.0, progress)


def proximity(distance: FloatArray, start_distance: FloatArray) -> FloatArray:
    """Return 1 at distance 0, falling linearly to 0 at the start distance or farther."""
    return np.clip(1.0 - distance / np.maximum(start_distance, 1e-6), 0.0, 1.0)


def distance(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the Euclidean distance [N] of points [N, 3], m."""
    return np.linalg.norm(a - b, axis=1)


def reach_progress(
    now: SceneState, start: SceneState, point: Callable[[SceneState], FloatArray], margin: float = 0.02
) -> FloatArray:
    """Return the progress [N] of the tool from its start to within `margin` m of `point(state)`, [N, 3]."""
    return proximity(distance(now.tool_pos, point(now)) - margin, distance(start.tool_pos, point(start)) - margin)


def select_subtask(first_fraction: FloatArray, *later: tuple[np.ndarray, FloatArray]) -> tuple[np.ndarray, FloatArray]:
    """Return the last subtask whose condition holds, int64 [N], and its fraction [N].

    `later` are the conditions and fractions of the subtasks after the first, in order.
    """
    conditions, fractions = zip(*reversed(later), strict=True)
    return np.select(conditions, range(len(later), 0, -1), 0), np.select(conditions, fractions, first_fraction)


def closing_fraction(opening: FloatArray, width: float) -> FloatArray:
    """Return 0 with the fingers open (8 cm), 1 when they have closed to `width`."""
    return np.clip((0.08 - opening) / (0.08 - width), 0.0, 1.0)


def is_grasped(now: SceneState, position: FloatArray, width: float) -> np.ndarray:
    """Return whether the fingers hold an object of that width at that position, bool [N]."""
    is_near = distance(now.tool_pos, position) < ITEM_HALF_SIZE_M + PAD_HALF_WIDTH_M
    return is_near & (np.abs(now.gripper_opening - width) < 0.008)


ITEM_WIDTH_M = 2 * ITEM_HALF_SIZE_M
"""Width of an item, m."""
PAD_HALF_WIDTH_M = 0.009
"""Half width of a finger pad, m: pads and cube overlap up to this distance from the edge of the cube."""
