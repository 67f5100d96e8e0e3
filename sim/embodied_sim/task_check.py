"""Finds the mistakes in a task before anybody records with it: what it says of itself, where its plans lead, its steps.

Takes a quarter of a second or so: the scene is compiled, and the expert plays one episode in a few trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from embodied_sim.arm import WORKSPACE_BOUNDS_M
from embodied_sim.control import FloatArray
from embodied_sim.episode_init import NUM_START_POSES
from embodied_sim.layout import Layout
from embodied_sim.observation import build_observation
from embodied_sim.props import Prop
from embodied_sim.props.prop import PALETTE
from embodied_sim.sim_errors import SimError, describe_error, lookup
from embodied_sim.state import SceneState
from embodied_sim.task import SUCCESS_OUTCOME, WRONG_OBJECT_OUTCOME, Task
from embodied_sim.task_sandbox import TaskSandbox
from embodied_sim.waypoints import Plan, Waypoint

OPTIONAL_ATTRIBUTES = ("watched", "sides")
NUM_TEST_ENVS = 4
"""In which a task is tried."""
TUPLE_ATTRIBUTES: Mapping[str, tuple[type, str]] = {
    "props": (Prop, "props such as (Bowl(), Item('cube'))"),
    "steps": (str, "names such as ('reach', 'lift')"),
    "templates": (str, "sentences such as ('lift the {color} cube',)"),
    "watched": (str, "points of the props"),
    "sides": (str, "words such as ('left', 'right')"),
}


def check_task(task_class: type[Task]) -> None:
    """Raise `SimError`, one sentence that names the task and says what to mend, unless the task is sound.

    Whether the expert succeeds and the failures fail is not judged: `embodied-rm play` and `collect` show it.
    """
    check_attributes(task_class)
    TaskCheck(task_class()).run()


def check_attributes(task_class: type[Task]) -> None:
    """Raise `SimError` unless attributes and methods are there and of the right kind."""
    if missing := sorted(task_class.__abstractmethods__):
        raise task_error(task_class, f"it must define {', '.join(f'{name}()' for name in missing)}")
    for name, (entry_type, description) in TUPLE_ATTRIBUTES.items():
        value = getattr(task_class, name, None)
        is_valid = isinstance(value, tuple) and all(isinstance(entry, entry_type) for entry in value)
        if not is_valid or (not value and name not in OPTIONAL_ATTRIBUTES):
            raise task_error(task_class, f"{name} must be a tuple of {description}, got {value!r}")
    max_steps = getattr(task_class, "max_episode_steps", None)
    if not isinstance(max_steps, int) or max_steps < 1:
        raise task_error(
            task_class, f"max_episode_steps must be a whole number of control steps of 50 ms, got {max_steps!r}"
        )


def task_error(task_class: type[Task], message: str) -> SimError:
    """The sentence about a mistake in a task."""
    return SimError(f"task {task_class.name!r}: {message}")


class TaskCheck:
    """The checks of one task, in the order in which a mistake would mislead the next."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def run(self) -> None:
        """Every check."""
        self.check_props()
        layouts = [self.check_layout(seed) for seed in range(NUM_TEST_ENVS)]
        self.check_templates(layouts[0])
        plans = self.check_plans()
        sandbox = self.call_task("building its scene", lambda: TaskSandbox(self.task, layouts))
        self.check_start(sandbox.read())
        self.check_named_bodies(sandbox, layouts[0])
        for outcome, outcome_plans in plans.items():
            for index, plan in enumerate(outcome_plans):
                self.check_targets(
                    "expert()" if outcome == SUCCESS_OUTCOME else f"failures()[{outcome!r}][{index}]",
                    plan,
                    sandbox.read(),
                )
        self.call_task("playing expert()", lambda: self.check_expert(sandbox))
        sandbox.close()

    def error(self, message: str) -> SimError:
        """The sentence about a mistake."""
        return task_error(type(self.task), message)

    def call_task(self, action: str, call: Callable[[], Any]) -> Any:
        """What the task answers; an error in it becomes a sentence with the line."""
        try:
            return call()
        except SimError:
            raise
        except Exception as error:
            raise self.error(
                f"{action} ended in {describe_error(error, type(self.task).expert_plan.__code__.co_filename)}"
            ) from error

    def check_props(self) -> None:
        """Props have names of their own, known colors and points that the task's objects and watched points are."""
        names = [prop.name for prop in self.task.props]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise self.error(f"two props are called {min(duplicates)!r}: give each a name of its own")
        points = {name: name for prop in self.task.props for name in prop.point_names}
        for prop in self.task.props:
            if prop.color is not None:
                lookup(PALETTE, prop.color, f"color of {prop.name!r} in task {self.task.name!r}:")
        for name in self.task.observed_points:
            lookup(points, name, f"watched point of task {self.task.name!r}:")
        object_names = {**points, **{item.name: item.name for item in self.task.items}}
        for name in self.call_task("objects", lambda: self.task.objects):
            lookup(object_names, name, f"object of task {self.task.name!r}:")

    def check_layout(self, seed: int) -> Layout:
        """A start that the seed alone decides."""
        first, second = (
            self.call_task("layout()", lambda: self.task.draw_layout(np.random.default_rng(seed), NUM_START_POSES))
            for _ in range(2)
        )
        if not all(np.array_equal(getattr(first, field.name), getattr(second, field.name)) for field in fields(Layout)):
            raise self.error("layout() gives two starts for one seed: draw everything from the rng that it is given")
        return first

    def check_templates(self, layout: Layout) -> None:
        """Every placeholder of a template is known."""
        placeholders = self.call_task("words()", lambda: self.task.template_fields(layout))
        available = ", ".join(f"{{{placeholder}}}" for placeholder in sorted(placeholders)) or "none"
        for template in self.task.templates:
            try:
                template.format(**placeholders)
            except (KeyError, IndexError, ValueError) as error:
                raise self.error(
                    f"the template {template!r} has a placeholder ({error}) that is not known here. Available: {available}"
                ) from None

    def check_plans(self) -> dict[str, tuple[Plan, ...]]:
        """Outcome -> plans: the expert's, and at least two ways to fail, mistaking the object among them."""
        failures = self.call_task("failures()", self.task.failure_plans)
        outcomes = tuple(failures) if isinstance(failures, Mapping) else ()
        if len(outcomes) < 2 or WRONG_OBJECT_OUTCOME not in outcomes or SUCCESS_OUTCOME in outcomes:
            raise self.error(
                f"failures() must give plans for two kinds of failure or more, {WRONG_OBJECT_OUTCOME!r} among them (the right "
                f"thing done to the wrong object, or the wrong thing done) and not {SUCCESS_OUTCOME!r}, got {outcomes}"
            )
        plans = {SUCCESS_OUTCOME: (self.call_task("expert()", self.task.expert_plan),), **failures}
        for outcome, outcome_plans in plans.items():
            if (
                not isinstance(outcome_plans, tuple)
                or not outcome_plans
                or not all(_is_plan(plan) for plan in outcome_plans)
            ):
                prefix = "" if outcome == SUCCESS_OUTCOME else "one tuple or more, each "
                raise self.error(f"the plans for {outcome!r} must be {prefix}a tuple of one waypoint or more")
        return plans

    def check_start(self, state: SceneState) -> None:
        """Nothing is done yet, and the policy sees what the words mean."""
        self.check_progress(state, state)
        if self.call_task("success()", lambda: self.task.success(state)).any():
            raise self.error(
                "success() holds at the start of an episode: let layout() draw starts in which it does not"
            )
        observation = self.observe(state)
        other_side = replace(state, side_index=(state.side_index + 1) % max(len(self.task.sides), 1))
        if self.task.sides and np.array_equal(observation, self.observe(other_side)):
            raise self.error("the policy cannot know which of its sides is meant: let extra() give what depends on it")

    def check_named_bodies(self, sandbox: TaskSandbox, layout: Layout) -> None:
        """The instruction names bodies that are there."""
        bodies = {sandbox.model.body(i).name: i for i in range(sandbox.model.nbody)}
        for name in self.call_task("named_bodies()", lambda: self.task.named_bodies(layout)):
            lookup(bodies, name, f"body named by task {self.task.name!r}:")

    def observe(self, state: SceneState) -> FloatArray:
        """What the policy observes."""
        return self.call_task(
            "extra()", lambda: build_observation(state, self.task.observed_points, self.task.extra_observation(state))
        )

    def check_progress(self, now: SceneState, start: SceneState) -> None:
        """stage() and success() give what the environment reads."""
        subtask, fraction = self.call_task("stage()", lambda: self.task.current_subtask(now, start))
        self.check_column("the steps of stage()", subtask, len(now), "iu", "whole numbers")
        self.check_column("the shares of stage()", fraction, len(now), "fiu", "numbers")
        self.check_column(
            "success()", self.call_task("success()", lambda: self.task.success(now)), len(now), "b", "bools"
        )
        if not np.isfinite(fraction).all():
            raise self.error("a share of stage() is not finite: is something divided by 0?")
        if out_of_range := set(subtask.tolist()) - set(range(len(self.task.subtasks))):
            names = ", ".join(self.task.subtasks)
            raise self.error(
                f"stage() gives step {min(out_of_range)}, but steps names 0 to {len(self.task.subtasks) - 1}: {names}"
            )

    def check_column(self, label: str, value: Any, count: int, kinds: str, expected: str) -> None:
        """An array [count] of such numbers."""
        if not isinstance(value, np.ndarray) or value.shape != (count,) or value.dtype.kind not in kinds:
            raise self.error(
                f"{label} must be an array of {expected}, one a world ([{count}] here), got {_shape(value)}"
            )

    def check_targets(self, label: str, plan: Plan, state: SceneState) -> None:
        """Every waypoint has a point for every world."""
        for index, waypoint in enumerate(plan):
            goal = self.call_task(f"waypoint {index} of {label}", partial(waypoint.target, state, state.tool_pos))
            self.check_finite(f"waypoint {index} of {label}", goal, len(state))

    def check_finite(self, label: str, goal: Any, count: int) -> None:
        """Points [count, 3] of finite numbers."""
        if not isinstance(goal, np.ndarray) or goal.shape != (count, 3) or not np.isfinite(goal).all():
            raise self.error(f"{label} must lead to finite points, one a world ([{count}, 3] here), got {_shape(goal)}")

    def check_expert(self, sandbox: TaskSandbox) -> None:
        """Along the expert's way the tool is sent where it can go, and stage() stays among the steps."""
        start, plan = sandbox.read(), self.task.expert_plan()
        for state, waypoints, goals in sandbox.play(plan, self.task.max_episode_steps):
            self.check_progress(state, start)
            for index, goal in zip(waypoints.tolist(), goals, strict=True):
                self.check_reachable(f"waypoint {index} of expert()", goal, plan[index].tolerance)

    def check_reachable(self, label: str, goal: FloatArray, tolerance: float) -> None:
        """The tool can be sent there, or nearer than the tolerance."""
        if np.linalg.norm(goal - np.clip(goal, *WORKSPACE_BOUNDS_M)) > tolerance:
            limits = ", ".join(
                f"{axis} {low:g} to {high:g}" for axis, low, high in zip("xyz", *WORKSPACE_BOUNDS_M, strict=True)
            )
            raise self.error(f"{label} leads to {goal.round(3).tolist()} m, where the tool cannot be sent: {limits} m")


def _is_plan(plan: object) -> bool:
    return isinstance(plan, tuple) and bool(plan) and all(isinstance(waypoint, Waypoint) for waypoint in plan)


def _shape(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    not_finite = value.dtype.kind == "f" and not np.isfinite(value).all()
    return f"{value.dtype} {list(value.shape)}{', not all finite' if not_finite else ''}"
