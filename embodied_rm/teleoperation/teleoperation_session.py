"""`TeleoperationSession`: what a person sees and commands, between the environment's thread and the page's threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from embodied_rm.annotate.frame_cache import encode_jpeg
from embodied_rm.report.episode_images import concat_horizontal
from embodied_rm.types import Array, Frames

COMMAND_TIMEOUT_S = 1.0  # age from which on a command no longer moves: the page was closed, or its machine sleeps
INTERRUPT_CHECK_S = 0.2  # time between two looks for Ctrl-C while nobody commands


class TeleoperationSession:
    """The images and the state of the last step, and the last command. Thread-safe."""

    def __init__(self, num_motions: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`num_motions`: leading dimensions of the action that stop without a command; the others, the grip, stay."""
        self.num_motions, self._clock = num_motions, clock
        self._changed = threading.Condition()
        self._number, self._image, self._state = 0, b"", dict[str, Any]()
        self._command, self._command_time_s = (0.0,) * num_motions, -COMMAND_TIMEOUT_S
        self._has_rested = False

    def publish(self, views: Sequence[Frames], state: Mapping[str, Any], *, starts: bool = False) -> None:
        """Let the page show the images, uint8 [H, W, 3], and the state of a step.

        `starts`: an episode or a take-over starts, and the commands before it count no longer.
        """
        image = encode_jpeg(concat_horizontal([view[None] for view in views])[0])
        with self._changed:
            if starts:
                self._command_time_s, self._has_rested = -COMMAND_TIMEOUT_S, False
            self._number, self._image, self._state = self._number + 1, image, dict(state)
            self._changed.notify_all()

    def wait_for_step(self, number: int, timeout_s: float) -> dict[str, Any]:
        """Return the number and the state of the last step, at once if its number is above `number`."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > number, timeout_s)
            return {"number": self._number, **self._state}

    def image(self) -> bytes:
        """Return the images of the last step as JPEG."""
        with self._changed:
            return self._image

    def command(self, action: Sequence[float]) -> None:
        """Store a command of the page."""
        with self._changed:
            self._command, self._command_time_s = tuple(action), self._clock()
            self._has_rested |= not any(self._command[: self.num_motions])
            self._changed.notify_all()

    def read_action(self, action_dim: int) -> Array:
        """Return the action [action_dim] of the last command; an old one moves nothing."""
        action = np.zeros(action_dim, np.float32)
        with self._changed:
            action[: len(self._command)] = self._command[:action_dim]
            if self._clock() - self._command_time_s >= COMMAND_TIMEOUT_S:
                action[: self.num_motions] = 0
        return action

    def wait_for_motion(self) -> None:
        """Wait until a command moves something, after one that does not: a key may still be held. Ctrl-C ends it."""
        with self._changed:
            while not self._changed.wait_for(self._begins, INTERRUPT_CHECK_S):
                continue

    def _begins(self) -> bool:
        is_new = self._clock() - self._command_time_s < COMMAND_TIMEOUT_S
        return is_new and self._has_rested and any(self._command[: self.num_motions])
