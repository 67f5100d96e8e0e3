"""A few environments for checking a task before it is registered."""

from collections.abc import Iterator, Sequence

import numpy as np

from embodied_sim.arm import ArmController
from embodied_sim.backends import make_backend
from embodied_sim.control import SUBSTEPS_PER_STEP, FloatArray
from embodied_sim.domain_randomization import Randomization
from embodied_sim.episode_init import EpisodeInitializer
from embodied_sim.layout import Layout
from embodied_sim.robots import ROBOTS, IntArray
from embodied_sim.scene import build_scene
from embodied_sim.sim_errors import SimError
from embodied_sim.state import SceneReader, SceneState
from embodied_sim.task import Task
from embodied_sim.waypoints import Plan, PlanFollower


class TaskSandbox:
    """Environments of a task with the arm "panda", one per layout, each at the start of its episode."""

    def __init__(self, task: Task, layouts: Sequence[Layout]) -> None:
        robot, rows = ROBOTS["panda"], np.arange(len(layouts))
        self.model = build_scene(task.props, robot)
        for fixture in task.fixtures:
            if self.model.body(fixture.name).mocapid[0] < 0:
                raise SimError(
                    f"task {task.name!r}: fixture {fixture.name!r} must create its body with self.add_body(spec)"
                )
        self._backend = make_backend("batch", self.model, len(layouts))
        self._arm = ArmController(self._backend, robot)
        self._reader = SceneReader(self._arm, task.props, task.objects)
        self._order = np.array([layout.object_order for layout in layouts], np.int64).reshape(len(layouts), -1)
        self._side = np.array([layout.side_index for layout in layouts], np.int64)
        EpisodeInitializer(self._backend, self._arm, task, Randomization()).initialize(rows, layouts)
        self._arm.hold_position(rows)

    def read(self) -> SceneState:
        """Return the current state."""
        return self._reader.read(self._order, self._side)

    def close(self) -> None:
        """Free the physics."""
        self._backend.close()

    def play(self, plans: Sequence[Plan], num_steps: int) -> Iterator[tuple[SceneState, IntArray, FloatArray]]:
        """Follow a plan per environment; after each step, yield the state, waypoint indices [N] and goals [N, 3]."""
        state, rows = self.read(), np.arange(len(self._side))
        follower = PlanFollower(len(rows))
        follower.assign(rows, plans, np.ones(len(rows)), state)
        for _ in range(num_steps):
            waypoint_indices = follower.waypoint_index.copy()
            self._arm.apply_action(np.clip(follower.act(state), -1.0, 1.0))
            self._backend.step(SUBSTEPS_PER_STEP)
            state = self.read()
            yield state, waypoint_indices, follower.goal
