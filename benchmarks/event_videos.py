"""Videos of 200 frames of `lift_cube` in which three frames can decide: the cube is held, and for an instant it is not.

A video is recorded in the simulator: a scripted success that holds the cube up to the end. Its event is three frames of
a scripted failure in the same scene: the cube is dropped, put back, or the other one is held. The task is done exactly
without an event.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from embodied_rm.atomic_file import atomic_file
from embodied_rm.types import Frames
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.vec_env import TabletopVecEnv, VecEnvConfig

TASK, VIEW, IMAGE_SIZE = "lift_cube", "wrist", 32
VIDEO_LENGTH, EVENT_LENGTH = 200, 3  # frames
OUTCOMES = ("drop", "undo", "wrong_object")  # scripted failures that events are taken from
FAILURE_LENGTH, NUM_LAST_FRAMES = 100, 20  # control steps of a failure, and those of its end that events are taken from
EVENT_STARTS = (60, 190)  # first and last time at which an event can begin: the cube is held, and held again later
NUM_ENVS = 20
ACTION_NOISE, SPEED_RANGE = 0.3, (0.6, 1.0)  # as in the recordings of `collect`


class Scenes(NamedTuple):
    """Recordings of S scenes."""

    held: Frames  # uint8 [S, VIDEO_LENGTH, H, W, 3]: the task is done, and stays done
    failed: Frames  # uint8 [S, len(OUTCOMES), NUM_LAST_FRAMES, H, W, 3]: the end of each failure
    instructions: npt.NDArray[np.str_]  # [S]

    def __len__(self) -> int:
        return len(self.held)

    def video(self, scene: int, event: Event | None) -> Frames:
        """Return the video of a scene, uint8 [VIDEO_LENGTH, H, W, 3]."""
        if event is None:
            return self.held[scene]
        frames = self.held[scene].copy()
        source = self.failed[scene, event.outcome, event.source : event.source + EVENT_LENGTH]
        frames[event.start : event.start + EVENT_LENGTH] = source
        return frames


class Event(NamedTuple):
    """What happens in a video, and when."""

    outcome: int  # index in `OUTCOMES`
    start: int  # its first frame in the video
    source: int  # its first frame in the end of the failure

    @property
    def times(self) -> range:
        """Frames of the video that show it."""
        return range(self.start, self.start + EVENT_LENGTH)


def draw_event(rng: np.random.Generator) -> Event:
    """Return a random event."""
    first, last = EVENT_STARTS
    source = int(rng.integers(NUM_LAST_FRAMES - EVENT_LENGTH + 1))
    return Event(int(rng.integers(len(OUTCOMES))), int(rng.integers(first, last + 1)), source)


def record_scenes(path: Path, num_scenes: int, seed: int) -> Scenes:
    """Record scenes into a file, unless it exists; scenes in which the cube is not held are left out."""
    if not path.exists():
        batches: list[Scenes] = []
        while (count := sum(len(batch) for batch in batches)) < num_scenes:
            logging.info("%s: %d of %d scenes recorded", path.name, count, num_scenes)
            batches.append(record_batch(seed + len(batches) * NUM_ENVS))
        fields = {name: np.concatenate([getattr(b, name) for b in batches])[:num_scenes] for name in Scenes._fields}
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial, partial.open("wb") as file:
            np.savez(file, **fields)  # type: ignore[arg-type]
    with np.load(path, allow_pickle=False) as stored:
        return Scenes(**{name: stored[name] for name in Scenes._fields})


def record_batch(seed: int) -> Scenes:
    """Record `NUM_ENVS` scenes once per outcome."""
    config = VecEnvConfig(
        num_envs=NUM_ENVS,
        views=(VIEW,),
        image_size=IMAGE_SIZE,
        ends_on_success=False,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    env = TabletopVecEnv(TASK, config=config)
    held, is_done = play(env, "success", VIDEO_LENGTH, seed)
    failures = [play(env, outcome, FAILURE_LENGTH, seed)[0][:, -NUM_LAST_FRAMES:] for outcome in OUTCOMES]
    instructions = np.array(env.instructions)
    env.close()
    kept = is_done[:, EVENT_STARTS[0] :].all(axis=1)
    return Scenes(held[kept], np.stack(failures, axis=1)[kept], instructions[kept])


def play(env: TabletopVecEnv, outcome: str, num_frames: int, seed: int) -> tuple[Frames, npt.NDArray[np.bool_]]:
    """Follow a plan from the start of the same scenes.

    Returns:
        Images uint8 [N, num_frames, H, W, 3], and whether the task is done at each, bool [N, num_frames].
    """
    env.reset(seed=seed)
    policy = ScriptedPolicy(env, (outcome,), seed=seed, noise=ACTION_NOISE, speed_range=SPEED_RANGE)
    policy.reset(np.arange(NUM_ENVS))
    frames, is_done = [], []
    for _ in range(num_frames):
        frames.append(env.render_views()[:, 0])
        is_done.append(env.task.success(env.state))
        env.step(policy.act())
    return np.stack(frames, axis=1), np.stack(is_done, axis=1)
