"""`PersonPolicy`: a person acts in a simulated environment, on a local page. `PersonHelper` takes over there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from torch import Tensor

from embodied_rm.data.record import Observations, PolicyFn
from embodied_rm.errors import UserError
from embodied_rm.run_folder import Reporter
from embodied_rm.teleoperation.teleoperation_server import serve_in_background
from embodied_rm.teleoperation.teleoperation_session import TeleoperationSession
from embodied_rm.types import Array, BoolArray, IntArray
from embodied_sim.arm import ACTION_DIM
from embodied_sim.vec_env import TabletopVecEnv

PERSON = "person"
"""Name of the policy."""
WRIST_VIEW = "wrist"  # the camera that moves with the hand
STEPS_PER_S = 5.0  # a quarter of the speed of the arm: a person has no practice
EPISODE_BEGINS = "The episode begins with your first move."
TAKEOVER_BEGINS = "The policy makes no progress. Your first move takes over."
POLICY_ACTS = "The policy acts."
STILL_STEPS = 10  # steps without motion after which a take-over ends


class PersonPolicy:
    """Shows the views of one environment at every step, and returns what the person commands. It keeps the pace."""

    def __init__(self, envs: TabletopVecEnv, session: TeleoperationSession, *, takes_over: bool = False) -> None:
        """Act in the only environment of `envs`, in whole episodes, or where a policy makes no progress."""
        assert envs.num_envs == 1
        if not envs.view_names:
            raise UserError("a person needs a camera: set env.views=[front]")
        self._envs, self._session, self._takes_over = envs, session, takes_over
        self._episode, self._step, self._next_time_s = 0, 0, 0.0
        self._axes = view_axes(envs)

    def act(self, observation: Observations, new_episodes: IntArray) -> Array:
        """Return the action of the next step, float32 [1, 4]; an episode begins with the person's first move."""
        return self.next_action(starts=len(new_episodes) > 0)

    def next_action(self, *, starts: bool) -> Array:
        """Return the action of the next step, float32 [1, 4]; if an episode or a take-over starts, wait for a move."""
        self._episode, self._step = (self._episode + 1, 0) if starts else (self._episode, self._step + 1)
        begins = TAKEOVER_BEGINS if self._takes_over else EPISODE_BEGINS
        self.show(begins if starts else "", starts=starts)
        if starts:
            self._session.wait_for_motion()
            self._next_time_s = time.monotonic()
        self._next_time_s = max(self._next_time_s + 1 / STEPS_PER_S, time.monotonic())
        time.sleep(max(0.0, self._next_time_s - time.monotonic()))
        return self._session.read_action(ACTION_DIM)[None]

    def show(self, message: str, *, starts: bool = False) -> None:
        """Let the page show the current images and a message, and whether an episode or a take-over starts."""
        state = {
            "instruction": self._envs.instructions[0],
            "part": f"{'take-over' if self._takes_over else 'episode'} {self._episode}",
            "message": message,
            "closed": float(self._envs.grip_command()[0]) > 0,
            "step": self._step,
            "share": None if self._takes_over else self._step / self._envs.max_episode_steps,
            "axes": self._axes.tolist(),
        }
        self._session.publish(self._envs.render_views()[0], state, starts=starts)


class PersonHelper:
    """A person who takes over (`embodied_rm.rl.envs.takeover.Helper`)."""

    def __init__(self, policy: PersonPolicy) -> None:
        """Let the person of a policy act."""
        self._policy, self._begins, self._still_steps = policy, True, 0

    def reset(self, rows: IntArray) -> None:
        """Begin a take-over; the next action waits for the person."""
        self._begins, self._still_steps = True, 0

    def act(self, rows: IntArray) -> Array:
        """Return the person's action [1, 4]."""
        starts, self._begins = self._begins, False
        action = self._policy.next_action(starts=starts)
        self._still_steps = 0 if action[0, : ACTION_DIM - 1].any() else self._still_steps + 1
        return action

    def has_finished(self, rows: IntArray) -> BoolArray:
        """Return whether the person has let go."""
        finished = self._still_steps >= STILL_STEPS
        if finished:
            self._policy.show(POLICY_ACTS)
        return np.array([finished])

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing: after a restart, the person begins again."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Begin again."""
        self._begins = True


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
    with open_page(envs, port, reporter, takes_over=False) as policy:
        yield policy.act


@contextmanager
def open_person_helper(envs: TabletopVecEnv, port: int, reporter: Reporter) -> Iterator[PersonHelper]:
    """Serve the page of a person who takes over; raise `UserError` if its port is in use."""
    with open_page(envs, port, reporter, takes_over=True) as policy:
        yield PersonHelper(policy)


@contextmanager
def open_page(envs: TabletopVecEnv, port: int, reporter: Reporter, *, takes_over: bool) -> Iterator[PersonPolicy]:
    """Serve the page of a person, and say where."""
    session = TeleoperationSession(num_motions=ACTION_DIM - 1)
    policy = PersonPolicy(envs, session, takes_over=takes_over)
    with serve_in_background(session, port) as url:
        reporter.log(f"open {url} in a browser, and act there")
        yield policy
