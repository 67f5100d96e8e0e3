"""Validation of a task before it is used: attributes, templates, plans and progress.

Takes about a quarter of a second: it compiles the scene and plays the expert for one episode in a few environments.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from embodied_sim.arm import WORKSPACE_BOUNDS_M
from embodied_sim.control import FloatArray
from embodied_sim.episode_init import NUM_START_POSES
from embodied_sim.layout import Layout
from embodied_sim.observation import build_observation
from embodied_sim.palette import PALETTE
from embodied_sim.props import Prop
from embodied_sim.sim_errors import SimError, describe_error, lookup
from embodied_sim.state import SceneState
from embodied_sim.task import SUCCESS_OUTCOME, WRONG_OBJECT_OUTCOME, Task
from embodied_sim.task_sandbox import TaskSandbox
from embodied_sim.waypoints import Plan, Waypoint

OPTIONAL_ATTRIBUTES = ("observed_points", "sides")
NUM_TEST_ENVS = 4
TUPLE_ATTRIBUTES: Mapping[str, tuple[type, str]] = {
    "props": (Prop, "props such as (Bowl(), Item('cube'))"),
    "subtasks": (str, "names such as ('reach', 'lift')"),
    "templates": (str, "sentences such as ('lift the {color} cube',)"),
    "observed_points": (str, "points of the props"),
    "sides": (str, "words such as ('left', 'right')"),
}


def check_task(task_class: type[Task]) -> None:
    """Validate a task class. Raises `SimError`, one sentence that names the task and the first problem.

    It does not check that the expert succeeds and the failure plans fail; `embodied-rm play` and `collect` show that.
    """
    check_attributes(task_class)
    TaskCheck(task_class()).run()


def check_attributes(task_class: type[Task]) -> None:
    """Raise `SimError` unless all attributes and methods exist and have the right type."""
    if missing := sorted(task_class.__abstractmethods__):
        raise task_error(task_class, f"it must define {', '.join(f'{name}()' for name in missing)}")
    for name, (entry_type, description) in TUPLE_ATTRIBUTES.items():
        value = getattr(task_class, name, None)
        is_valid = isinstance(value, tuple) and all(isinstance(entry, entry_type) for entry in value)
        if not is_valid or (not value and name not in OPTIONAL_ATTRIBUTES):
            raise task_error(task_class, f"{name} must be a tuple of {description}, got {value!r}")
    max_steps = getattr(task_class, "max_episode_steps", None)
    if not isinstance(max_steps, int) or max_steps < 1:
        expected = "max_episode_steps must be a whole number of control steps of 50 ms"
        raise task_error(task_class, f"{expected}, got {max_steps!r}")


def task_error(task_class: type[Task], message: str) -> SimError:
    """Return the error for a problem of a task."""
    return SimError(f"task {task_class.name!r}: {message}")


class TaskCheck:
    """Checks of one task, ordered so that each may rely on those before it."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def run(self) -> None:
        """Run all checks."""
        self.check_props()
        layouts = [self.check_layout(seed) for seed in range(NUM_TEST_ENVS)]
        self.check_templates(layouts[0])
        plans = self.check_plans()
        sandbox = self.call_task("building its scene", lambda: TaskSandbox(self.task, layouts))
        self.check_start(sandbox.read())
        self.check_named_bodies(sandbox, layouts[0])
        for outcome, outcome_plans in plans.items():
            for index, plan in enumerate(outcome_plans):
                is_expert = outcome == SUCCESS_OUTCOME
                label = "expert_plan()" if is_expert else f"failure_plans()[{outcome!r}][{index}]"
                self.check_targets(label, plan, sandbox.read())
        self.call_task("playing expert_plan()", lambda: self.check_expert(sandbox))
        sandbox.close()

    def error(self, message: str) -> SimError:
        """Return the error for a problem of this task."""
        return task_error(type(self.task), message)

    def call_task(self, action: str, call: Callable[[], Any]) -> Any:
        """Return the result of a call of the task; turn its exceptions into a `SimError` with the line."""
        try:
            return call()
        except SimError:
            raise
        except (Exception, SystemExit) as error:
            source_file = type(self.task).expert_plan.__code__.co_filename
            raise self.error(f"{action} ended in {describe_error(error, source_file)}") from error

    def check_props(self) -> None:
        """Check that props have unique names and known colors, and that observed points and objects exist."""
        names = [prop.name for prop in self.task.props]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise self.error(f"two props are called {min(duplicates)!r}: names must be unique")
        points = {name: name for prop in self.task.props for name in prop.point_names}
        for prop in self.task.props:
            if prop.color is not None:
                lookup(PALETTE, prop.color, f"color of {prop.name!r} in task {self.task.name!r}:")
        for name in self.task.observed_points:
            lookup(points, name, f"observed point of task {self.task.name!r}:")
        object_names = {**points, **{item.name: item.name for item in self.task.items}}
        for name in self.call_task("objects", lambda: self.task.objects):
            lookup(object_names, name, f"object of task {self.task.name!r}:")

    def check_layout(self, seed: int) -> Layout:
        """Draw a layout, and check that it depends on the seed only."""

        def draw() -> Layout:
            return self.task.draw_layout(np.random.default_rng(seed), NUM_START_POSES)

        first, second = (self.call_task("draw_layout()", draw) for _ in range(2))
        if not all(np.array_equal(getattr(first, field.name), getattr(second, field.name)) for field in fields(Layout)):
            raise self.error("draw_layout() returns two layouts for one seed: use only the rng argument")
        return first

    def check_templates(self, layout: Layout) -> None:
        """Check the placeholders of the templates."""
        placeholders = self.call_task("template_fields()", lambda: self.task.template_fields(layout))
        available = ", ".join(f"{{{placeholder}}}" for placeholder in sorted(placeholders)) or "none"
        for template in self.task.templates:
            try:
                template.format(**placeholders)
            except (KeyError, IndexError, ValueError) as error:
                problem = f"the template {template!r} has an unknown placeholder ({error})"
                raise self.error(f"{problem}. Available: {available}") from None

    def check_plans(self) -> dict[str, tuple[Plan, ...]]:
        """Return outcome -> plans: the expert's, and at least two kinds of failure, including `wrong_object`."""
        failures = self.call_task("failure_plans()", self.task.failure_plans)
        outcomes = tuple(failures) if isinstance(failures, Mapping) else ()
        if len(outcomes) < 2 or WRONG_OBJECT_OUTCOME not in outcomes or SUCCESS_OUTCOME in outcomes:
            raise self.error(
                f"failure_plans() must return plans for at least two kinds of failure, including "
                f"{WRONG_OBJECT_OUTCOME!r} (the right action on the wrong object, or the wrong action) and not "
                f"{SUCCESS_OUTCOME!r}, got {outcomes}"
            )
        plans = {SUCCESS_OUTCOME: (self.call_task("expert_plan()", self.task.expert_plan),), **failures}
        for outcome, outcome_plans in plans.items():
            if not _is_filled_tuple(outcome_plans) or not all(map(_is_plan, outcome_plans)):
                prefix = "" if outcome == SUCCESS_OUTCOME else "one or more tuples, each "
                raise self.error(f"the plans for {outcome!r} must be {prefix}a tuple of one or more waypoints")
        return plans

    def check_start(self, state: SceneState) -> None:
        """Check that the task is not done at the start, and that the observation shows the target side."""
        self.check_progress(state, state)
        if self.call_task("success()", lambda: self.task.success(state)).any():
            raise self.error("success() holds at the start of an episode: draw_layout() must not draw such starts")
        observation = self.observe(state)
        other_side = replace(state, side_index=(state.side_index + 1) % max(len(self.task.sides), 1))
        if self.task.sides and np.array_equal(observation, self.observe(other_side)):
            raise self.error("the observation does not depend on the side: extra_observation() must depend on it")

    def check_named_bodies(self, sandbox: TaskSandbox, layout: Layout) -> None:
        """Check that the bodies that the instruction names exist."""
        bodies = {sandbox.model.body(i).name: i for i in range(sandbox.model.nbody)}
        for name in self.call_task("named_bodies()", lambda: self.task.named_bodies(layout)):
            lookup(bodies, name, f"body named by task {self.task.name!r}:")

    def observe(self, state: SceneState) -> FloatArray:
        """Return the observation of a policy."""
        return self.call_task(
            "extra_observation()",
            lambda: build_observation(state, self.task.observed_points, self.task.extra_observation(state)),
        )

    def check_progress(self, now: SceneState, start: SceneState) -> None:
        """Check the results of current_subtask() and success()."""
        subtask, fraction = self.call_task("current_subtask()", lambda: self.task.current_subtask(now, start))
        self.check_column("the subtasks of current_subtask()", subtask, len(now), "iu", "whole numbers")
        self.check_column("the fractions of current_subtask()", fraction, len(now), "fiu", "numbers")
        success = self.call_task("success()", lambda: self.task.success(now))
        self.check_column("success()", success, len(now), "b", "bools")
        if not np.isfinite(fraction).all():
            raise self.error("a fraction of current_subtask() is not finite: is something divided by 0?")
        if out_of_range := set(subtask.tolist()) - set(range(len(self.task.subtasks))):
            choices = f"0 to {len(self.task.subtasks) - 1}: {', '.join(self.task.subtasks)}"
            raise self.error(f"current_subtask() returns {min(out_of_range)}, but subtasks has {choices}")

    def check_column(self, label: str, value: Any, count: int, kinds: str, expected: str) -> None:
        """Check that a value is an array [count] of a dtype kind."""
        if not isinstance(value, np.ndarray) or value.shape != (count,) or value.dtype.kind not in kinds:
            expected = f"an array of {expected}, one per environment ([{count}] here)"
            raise self.error(f"{label} must be {expected}, got {_shape(value)}")

    def check_targets(self, label: str, plan: Plan, state: SceneState) -> None:
        """Check that every waypoint has a finite goal in every environment."""
        for index, waypoint in enumerate(plan):
            name, count = f"waypoint {index} of {label}", len(state)
            goal = self.call_task(name, partial(waypoint.target, state, state.tool_pos))
            if not isinstance(goal, np.ndarray) or goal.shape != (count, 3) or not np.isfinite(goal).all():
                expected = f"finite points, one per environment ([{count}, 3] here)"
                raise self.error(f"{name} must lead to {expected}, got {_shape(goal)}")

    def check_expert(self, sandbox: TaskSandbox) -> None:
        """Play the expert and check that all goals are reachable and the progress is valid."""
        start, plan = sandbox.read(), self.task.expert_plan()
        for state, waypoints, goals in sandbox.play([plan] * NUM_TEST_ENVS, self.task.max_episode_steps):
            self.check_progress(state, start)
            for index, goal in zip(waypoints.tolist(), goals, strict=True):
                self.check_reachable(f"waypoint {index} of expert_plan()", goal, plan[index].tolerance)

    def check_reachable(self, label: str, goal: FloatArray, tolerance: float) -> None:
        """Check that a goal lies in the workspace, within the tolerance."""
        if np.linalg.norm(goal - np.clip(goal, *WORKSPACE_BOUNDS_M)) > tolerance:
            bounds = zip("xyz", *WORKSPACE_BOUNDS_M, strict=True)
            limits = ", ".join(f"{axis} {low:g} to {high:g}" for axis, low, high in bounds)
            raise self.error(f"{label} leads to {goal.round(3).tolist()} m, outside the workspace: {limits} m")


def _is_filled_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(value, tuple) and bool(value)


def _is_plan(plan: object) -> bool:
    return _is_filled_tuple(plan) and all(isinstance(waypoint, Waypoint) for waypoint in plan)


def _shape(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    not_finite = value.dtype.kind == "f" and not np.isfinite(value).all()
    return f"{value.dtype} {list(value.shape)}{', not all finite' if not_finite else ''}"
