"""A few worlds in which a task is tried once, before it has a name under which an environment could find it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sim.arm import Arm
from sim.backends import make_backend
from sim.control import SUBSTEPS, FloatArray
from sim.errors import SimError
from sim.experts import Plan, PlanFollower
from sim.layout import Layout
from sim.placing import Placer
from sim.randomize import Randomization
from sim.robots import ROBOTS, IntArray
from sim.scene import build_scene
from sim.state import SceneReader, SceneState
from sim.task import Task


class Trial:
    """Worlds of a task with the arm "panda", one a layout, each at the start of its episode."""

    def __init__(self, task: Task, layouts: Sequence[Layout]) -> None:
        robot, rows = ROBOTS["panda"], np.arange(len(layouts))
        self.model = build_scene(task.props, robot)
        for fixture in task.fixtures:
            if self.model.body(fixture.name).mocapid[0] < 0:
                raise SimError(f"task {task.name!r}: fixture {fixture.name!r} must make its body with self.body(spec)")
        self._backend = make_backend("batch", self.model, len(layouts))
        self._arm = Arm(self._backend, robot)
        self._reader = SceneReader(self._arm, task.props, task.objects)
        self._order = np.array([layout.order for layout in layouts], np.int64).reshape(len(layouts), -1)
        self._side = np.array([layout.side for layout in layouts], np.int64)
        Placer(self._backend, self._arm, task, Randomization()).place(rows, layouts)
        self._arm.hold(rows)

    def read(self) -> SceneState:
        """The state of every world now."""
        return self._reader.read(self._order, self._side)

    def close(self) -> None:
        """Free the worlds."""
        self._backend.close()

    def play(self, plan: Plan, steps: int) -> Iterator[tuple[SceneState, IntArray, FloatArray]]:
        """After each of `steps` control steps of the plan: the state, the waypoints [N] that were under way and their
        goals [N, 3]."""
        state, rows = self.read(), np.arange(len(self._side))
        follower = PlanFollower(len(rows))
        follower.assign(rows, [plan] * len(rows), np.ones(len(rows)), state)
        for _ in range(steps):
            waypoints = follower.waypoint.copy()
            self._arm.follow(np.clip(follower.act(state), -1.0, 1.0))
            self._backend.step(SUBSTEPS)
            state = self.read()
            yield state, waypoints, follower.goal
