"""Finds the mistakes in a task before anybody records with it: what it says of itself, where its plans lead, its steps.

Takes a quarter of a second or so: the scene is compiled, and the expert plays one episode in a few trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from sim.arm import WORKSPACE
from sim.control import FloatArray
from sim.errors import SimError, lookup, told
from sim.experts import Plan, Waypoint
from sim.layout import Layout
from sim.observation import observe
from sim.placing import START_POSES
from sim.props import Prop
from sim.props.base import PALETTE
from sim.state import SceneState
from sim.task import SUCCESS, WRONG_OBJECT, Task
from sim.trial import Trial

OPTIONAL = ("watched", "sides")
WORLDS = 4
"""In which a task is tried."""
TUPLES: Mapping[str, tuple[type, str]] = {
    "props": (Prop, "props such as (Bowl(), Item('cube'))"),
    "steps": (str, "names such as ('reach', 'lift')"),
    "templates": (str, "sentences such as ('lift the {colour} cube',)"),
    "watched": (str, "points of the props"),
    "sides": (str, "words such as ('left', 'right')"),
}


def check_task(kind: type[Task]) -> None:
    """Raise `SimError`, one sentence that names the task and says what to mend, unless the task is sound.

    Whether the expert succeeds and the failures fail is not judged: `embodied-rm play` and `collect` show it.
    """
    check_declared(kind)
    Check(kind()).all()


def check_declared(kind: type[Task]) -> None:
    """Raise `SimError` unless attributes and methods are there and of the right kind."""
    if missing := sorted(kind.__abstractmethods__):
        raise mistake(kind, f"it must define {', '.join(f'{name}()' for name in missing)}")
    for name, (of, such) in TUPLES.items():
        value = getattr(kind, name, None)
        right = isinstance(value, tuple) and all(isinstance(entry, of) for entry in value)
        if not right or (not value and name not in OPTIONAL):
            raise mistake(kind, f"{name} must be a tuple of {such}, got {value!r}")
    limit = getattr(kind, "max_episode_steps", None)
    if not isinstance(limit, int) or limit < 1:
        raise mistake(kind, f"max_episode_steps must be a whole number of control steps of 50 ms, got {limit!r}")


def mistake(kind: type[Task], what: str) -> SimError:
    """The sentence about a mistake in a task."""
    return SimError(f"task {kind.name!r}: {what}")


class Check:
    """The checks of one task, in the order in which a mistake would mislead the next."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def all(self) -> None:
        """Every check."""
        self.props()
        layouts = [self.drawn(seed) for seed in range(WORLDS)]
        self.words(layouts[0])
        plans = self.plans()
        trial = self.ask("building its scene", lambda: Trial(self.task, layouts))
        self.start(trial.read())
        self.bodies(trial, layouts[0])
        for kind, ways in plans.items():
            for number, plan in enumerate(ways):
                self.targets("expert()" if kind == SUCCESS else f"failures()[{kind!r}][{number}]", plan, trial.read())
        self.ask("playing expert()", lambda: self.played(trial))
        trial.close()

    def fail(self, what: str) -> SimError:
        """The sentence about a mistake."""
        return mistake(type(self.task), what)

    def ask(self, what: str, call: Callable[[], Any]) -> Any:
        """What the task answers; an error in it becomes a sentence with the line."""
        try:
            return call()
        except SimError:
            raise
        except Exception as error:
            raise self.fail(f"{what} ended in {told(error, type(self.task).expert.__code__.co_filename)}") from error

    def props(self) -> None:
        """Props have names of their own, known colours and points that the task's objects and watched points are."""
        names = [prop.name for prop in self.task.props]
        if twice := {name for name in names if names.count(name) > 1}:
            raise self.fail(f"two props are called {min(twice)!r}: give each a name of its own")
        points = {name: name for prop in self.task.props for name in prop.points}
        for prop in self.task.props:
            if prop.colour is not None:
                lookup(PALETTE, prop.colour, f"colour of {prop.name!r} in task {self.task.name!r}:")
        for name in self.task.watched:
            lookup(points, name, f"watched point of task {self.task.name!r}:")
        known = {**points, **{item.name: item.name for item in self.task.items}}
        for name in self.ask("objects", lambda: self.task.objects):
            lookup(known, name, f"object of task {self.task.name!r}:")

    def drawn(self, seed: int) -> Layout:
        """A start that the seed alone decides."""
        one, two = (
            self.ask("layout()", lambda: self.task.layout(np.random.default_rng(seed), START_POSES)) for _ in range(2)
        )
        if not all(np.array_equal(getattr(one, field.name), getattr(two, field.name)) for field in fields(Layout)):
            raise self.fail("layout() gives two starts for one seed: draw everything from the rng that it is given")
        return one

    def words(self, layout: Layout) -> None:
        """Every placeholder of a template is known."""
        words = self.ask("words()", lambda: self.task.words(layout))
        known = ", ".join(f"{{{word}}}" for word in sorted(words)) or "none"
        for template in self.task.templates:
            try:
                template.format(**words)
            except (KeyError, IndexError, ValueError) as error:
                raise self.fail(
                    f"the template {template!r} has a placeholder ({error}) that is not known here. Available: {known}"
                ) from None

    def plans(self) -> dict[str, tuple[Plan, ...]]:
        """Outcome -> plans: the expert's, and at least two ways to fail, mistaking the object among them."""
        failures = self.ask("failures()", self.task.failures)
        kinds = tuple(failures) if isinstance(failures, Mapping) else ()
        if len(kinds) < 2 or WRONG_OBJECT not in kinds or SUCCESS in kinds:
            raise self.fail(
                f"failures() must give plans for two kinds of failure or more, {WRONG_OBJECT!r} among them (the right "
                f"thing done to the wrong object, or the wrong thing done) and not {SUCCESS!r}, got {kinds}"
            )
        plans = {SUCCESS: (self.ask("expert()", self.task.expert),), **failures}
        for kind, ways in plans.items():
            if not isinstance(ways, tuple) or not ways or not all(_is_plan(plan) for plan in ways):
                plural = "" if kind == SUCCESS else "one tuple or more, each "
                raise self.fail(f"the plans for {kind!r} must be {plural}a tuple of one waypoint or more")
        return plans

    def start(self, state: SceneState) -> None:
        """Nothing is done yet, and the policy sees what the words mean."""
        self.progress(state, state)
        if self.ask("success()", lambda: self.task.success(state)).any():
            raise self.fail("success() holds at the start of an episode: let layout() draw starts in which it does not")
        seen = self.seen(state)
        other = replace(state, side=(state.side + 1) % max(len(self.task.sides), 1))
        if self.task.sides and np.array_equal(seen, self.seen(other)):
            raise self.fail("the policy cannot know which of its sides is meant: let extra() give what depends on it")

    def bodies(self, trial: Trial, layout: Layout) -> None:
        """The instruction names bodies that are there."""
        bodies = {trial.model.body(i).name: i for i in range(trial.model.nbody)}
        for name in self.ask("named_bodies()", lambda: self.task.named_bodies(layout)):
            lookup(bodies, name, f"body named by task {self.task.name!r}:")

    def seen(self, state: SceneState) -> FloatArray:
        """What the policy observes."""
        return self.ask("extra()", lambda: observe(state, self.task.watched, self.task.extra(state)))

    def progress(self, now: SceneState, start: SceneState) -> None:
        """stage() and success() give what the environment reads."""
        stage, share = self.ask("stage()", lambda: self.task.stage(now, start))
        self.column("the steps of stage()", stage, len(now), "iu", "whole numbers")
        self.column("the shares of stage()", share, len(now), "fiu", "numbers")
        self.column("success()", self.ask("success()", lambda: self.task.success(now)), len(now), "b", "bools")
        if not np.isfinite(share).all():
            raise self.fail("a share of stage() is not finite: is something divided by 0?")
        if beyond := set(stage.tolist()) - set(range(len(self.task.steps))):
            names = ", ".join(self.task.steps)
            raise self.fail(
                f"stage() gives step {min(beyond)}, but steps names 0 to {len(self.task.steps) - 1}: {names}"
            )

    def column(self, what: str, value: Any, count: int, kinds: str, want: str) -> None:
        """An array [count] of such numbers."""
        if not isinstance(value, np.ndarray) or value.shape != (count,) or value.dtype.kind not in kinds:
            raise self.fail(f"{what} must be an array of {want}, one a world ([{count}] here), got {_shape(value)}")

    def targets(self, what: str, plan: Plan, state: SceneState) -> None:
        """Every waypoint has a point for every world."""
        for number, waypoint in enumerate(plan):
            goal = self.ask(f"waypoint {number} of {what}", partial(waypoint.target, state, state.tool))
            self.finite(f"waypoint {number} of {what}", goal, len(state))

    def finite(self, what: str, goal: Any, count: int) -> None:
        """Points [count, 3] of finite numbers."""
        if not isinstance(goal, np.ndarray) or goal.shape != (count, 3) or not np.isfinite(goal).all():
            raise self.fail(f"{what} must lead to finite points, one a world ([{count}, 3] here), got {_shape(goal)}")

    def played(self, trial: Trial) -> None:
        """Along the expert's way the tool is sent where it can go, and stage() stays among the steps."""
        start, plan = trial.read(), self.task.expert()
        for state, waypoints, goals in trial.play(plan, self.task.max_episode_steps):
            self.progress(state, start)
            for number, goal in zip(waypoints.tolist(), goals, strict=True):
                self.reach(f"waypoint {number} of expert()", goal, plan[number].tolerance)

    def reach(self, what: str, goal: FloatArray, tolerance: float) -> None:
        """The tool can be sent there, or nearer than the tolerance."""
        if np.linalg.norm(goal - np.clip(goal, *WORKSPACE)) > tolerance:
            limits = ", ".join(f"{axis} {low:g} to {high:g}" for axis, low, high in zip("xyz", *WORKSPACE, strict=True))
            raise self.fail(f"{what} leads to {goal.round(3).tolist()} m, where the tool cannot be sent: {limits} m")


def _is_plan(plan: object) -> bool:
    return isinstance(plan, tuple) and bool(plan) and all(isinstance(waypoint, Waypoint) for waypoint in plan)


def _shape(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    odd = value.dtype.kind == "f" and not np.isfinite(value).all()
    return f"{value.dtype} {list(value.shape)}{', not all finite' if odd else ''}"
