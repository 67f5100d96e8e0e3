"""`PersonPolicy`: a person acts in a simulated environment, on a local page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from embodied_rm.data.record import Observations, PolicyFn
from embodied_rm.run_folder import Reporter
from embodied_rm.teleoperation.teleoperation_server import serve_in_background
from embodied_rm.teleoperation.teleoperation_session import TeleoperationSession
from embodied_rm.types import Array, IntArray
from embodied_sim.arm import ACTION_DIM
from embodied_sim.vec_env import TabletopVecEnv

PERSON = "person"
"""Name of the policy."""
WRIST_VIEW = "wrist"  # the camera that moves with the hand
STEPS_PER_S = 5.0  # a quarter of the speed of the arm: a person has no practice


class PersonPolicy:
    """Shows the views of one environment at every step, and returns what the person commands. It keeps the pace."""

    def __init__(self, envs: TabletopVecEnv, session: TeleoperationSession) -> None:
        """Act in the only environment of `envs`."""
        assert envs.num_envs == 1
        self._envs, self._session = envs, session
        self._episode, self._step, self._next_time_s = 0, 0, 0.0
        self._axes = view_axes(envs)

    def act(self, observation: Observations, new_episodes: IntArray) -> Array:
        """Return the action of the next step, float32 [1, 4]; an episode begins with the person's first move."""
        starts = len(new_episodes) > 0
        self._episode, self._step = (self._episode + 1, 0) if starts else (self._episode, self._step + 1)
        self._session.publish(self._envs.render_views()[0], self._state())
        if starts:
            self._session.wait_for_motion()
            self._next_time_s = time.monotonic()
        self._next_time_s = max(self._next_time_s + 1 / STEPS_PER_S, time.monotonic())
        time.sleep(max(0.0, self._next_time_s - time.monotonic()))
        return self._session.read_action(ACTION_DIM)[None]

    def _state(self) -> dict[str, object]:
        """Return what the page shows beside the images."""
        return {
            "instruction": self._envs.instructions[0],
            "episode": self._episode,
            "step": self._step,
            "max_steps": self._envs.max_episode_steps,
            "axes": self._axes.tolist(),
        }


def view_axes(envs: TabletopVecEnv) -> Array:
    """Return the directions in the world [2, 2] that are right and forward in the first view, along the table.

    The camera at the wrist moves; there they are left and forward of the robot's base.
    """
    if envs.view_names[0] == WRIST_VIEW:
        return np.array([[0.0, -1.0], [1.0, 0.0]])
    camera = envs.model.cam_mat0[envs.model.camera(envs.view_names[0]).id].reshape(3, 3)
    right, forward = camera[:2, 0], -camera[:2, 2]
    return np.array([right / np.linalg.norm(right), forward / np.linalg.norm(forward)])


@contextmanager
def open_person_policy(envs: TabletopVecEnv, port: int, reporter: Reporter) -> Iterator[PolicyFn]:
    """Serve the page of a person while the context is open; raise `UserError` if its port is in use."""
    session = TeleoperationSession(num_motions=ACTION_DIM - 1)
    policy = PersonPolicy(envs, session)
    with serve_in_background(session, port) as url:
        reporter.log(f"open {url} in a browser, and act there")
        yield policy.act
