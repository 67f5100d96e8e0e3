"""Scripted experts of the three worlds, and their failures: phases of a target for the hand and one for the fingers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FAILURES = ("stops early", "misses", "never grips", "gives up")
MISS_M = (0.05, 0.09)  # how far next to the object a missing hand aims, m
RADIANS_PER_ACTION = 0.5  # of robosuite's controller
YAW_AXIS = 3  # of its actions, before the fingers; the actions of SO-101 have no angle
OPEN, CLOSED = 1.0, -1.0
"""Commands of the fingers, in the units of actions; a world with the other sign negates them."""


@dataclass(frozen=True)
class Scene:
    """The present state that an expert sees, m."""

    hand: np.ndarray
    target: np.ndarray  # the cube, or the handle of the door
    yaw: float = 0.0  # angle of the hand around the vertical, rad


@dataclass(frozen=True)
class Phase:
    """Move the hand to a place, relative to the object or to the hand at the start of the phase, then hold it there."""

    offset: tuple[float, float, float]
    fingers: float
    relative_to_hand: bool = False
    tolerance: float = 0.012  # distance at which the phase ends, m
    hold_steps: int = 0  # steps that the hand stays
    yaw: float = 0.0  # angle from that at the start of the episode, rad
    max_steps: int = 25


class Expert:
    """Plays the phases of a task in one environment; `act` returns an action in [-1, 1]."""

    def __init__(
        self,
        read_scene: Callable[[], Scene],
        phases: Sequence[Phase],
        action_size: int,
        meters_per_action: float,
        rng: np.random.Generator,
        failure: str | None = None,
    ) -> None:
        """`failure`: one of `FAILURES`; None: it succeeds."""
        self._read_scene, self._phases, self._rng = read_scene, phases, rng
        self._action_size, self._meters_per_action = action_size, meters_per_action
        self._speed, self._noise = rng.uniform(0.6, 1.0), rng.choice([0.0, 0.1, 0.25])
        self._failure, self._index, self._steps, self._held = failure, 0, 0, 0
        self._start_hand: np.ndarray | None = None
        self._last_phase = rng.integers(1, len(phases)) if failure in ("stops early", "gives up") else len(phases)
        angle = rng.uniform(0, 2 * np.pi)
        miss = rng.uniform(*MISS_M) * np.array([np.cos(angle), np.sin(angle), 0])
        self._miss = miss if failure == "misses" else np.zeros(3)

    @property
    def phase(self) -> int:
        """Index of the present phase."""
        return self._index

    def act(self) -> np.ndarray:
        """Return the next action."""
        scene = self._read_scene()
        if self._start_hand is None:
            self._start_hand = self._home = scene.hand
            self._start_yaw = scene.yaw
        if self._index >= self._last_phase:
            goal = self._home if self._failure == "gives up" else scene.hand
            return self._action(goal - scene.hand, OPEN if self._failure == "gives up" else self._fingers(-1))
        phase = self._phases[self._index]
        base = self._start_hand if phase.relative_to_hand else scene.target + self._miss
        error = base + phase.offset - scene.hand
        action = self._action(error, self._fingers(0))
        if self._action_size > YAW_AXIS + 1:
            action[YAW_AXIS] = np.clip((self._start_yaw + phase.yaw - scene.yaw) / RADIANS_PER_ACTION, -1, 1)
        self._steps += 1
        self._held += bool(np.linalg.norm(error) < phase.tolerance or self._steps > phase.max_steps)
        if self._held > phase.hold_steps:
            self._index, self._steps, self._held, self._start_hand = self._index + 1, 0, 0, scene.hand
        return action

    def _fingers(self, offset: int) -> float:
        if self._failure == "never grips":
            return OPEN
        return self._phases[min(max(self._index + offset, 0), len(self._phases) - 1)].fingers

    def _action(self, error: np.ndarray, fingers: float) -> np.ndarray:
        action = np.zeros(self._action_size, np.float32)
        action[:3] = np.clip(error / self._meters_per_action, -self._speed, self._speed)
        action[:3] += self._noise * self._speed * self._rng.standard_normal(3)
        action[-1] = fingers
        return np.clip(action, -1, 1)


def lift_phases(grasp_height: float, lift: float, close_steps: int) -> list[Phase]:
    """Return: above the cube, down, close the fingers, up."""
    return [
        Phase((0, 0, grasp_height + 0.06), OPEN, tolerance=0.02),
        Phase((0, 0, grasp_height), OPEN, tolerance=0.008),
        Phase((0, 0, 0), CLOSED, relative_to_hand=True, hold_steps=close_steps),
        Phase((0, 0, lift), CLOSED, relative_to_hand=True),
    ]


QUARTER_TURN = -np.pi / 2
DOOR_PHASES = [
    Phase((0.0, 0.02, 0.10), OPEN, tolerance=0.02, yaw=QUARTER_TURN),  # above the handle
    Phase((-0.02, 0.0, -0.06), OPEN, max_steps=16, yaw=QUARTER_TURN),  # press it down until it hangs
    Phase((0.0, -0.04, -0.08), CLOSED, relative_to_hand=True, max_steps=6, yaw=QUARTER_TURN),  # behind it
    Phase((0.03, 0.08, -0.02), CLOSED, relative_to_hand=True, tolerance=0.02, max_steps=10, yaw=QUARTER_TURN),  # pull
    Phase((-0.03, 0.16, 0.0), CLOSED, relative_to_hand=True, tolerance=0.02, yaw=QUARTER_TURN),
]


def so101_expert(env: Any, rng: np.random.Generator, failure: str | None = None) -> Expert:
    """The cube of SO-101 is lifted by 10 cm."""
    world = env.unwrapped

    def read_scene() -> Scene:
        return Scene(np.array(world.ik_point_pos), np.array(world.data.sensor("block_pos").data))

    return Expert(read_scene, lift_phases(0.015, 0.13, close_steps=8), 4, 0.025, rng, failure)


def robosuite_expert(env: Any, rng: np.random.Generator, failure: str | None = None) -> Expert:
    """The cube of Lift is lifted by 4 cm, and the door of Door opened by 0.3 rad."""
    world = env.unwrapped
    is_door = "handle_pos" in world.observation

    def read_scene() -> Scene:
        observation = world.observation
        x, y, z, w = observation["robot0_eef_quat_site"]
        yaw = float(np.arctan2(2 * (x * y + z * w), 1 - 2 * (y * y + z * z)))
        return Scene(observation["robot0_eef_pos"], observation["handle_pos" if is_door else "cube_pos"], yaw)

    phases = DOOR_PHASES if is_door else lift_phases(0.0, 0.12, close_steps=4)
    return NegatedFingers(read_scene, phases, 5, 0.05, rng, failure)


class NegatedFingers(Expert):
    """An expert of robosuite, whose fingers close at +1."""

    def _action(self, error: np.ndarray, fingers: float) -> np.ndarray:
        return super()._action(error, -fingers)
