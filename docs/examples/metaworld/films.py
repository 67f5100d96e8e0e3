"""Videos of episodes of Meta-Environment as embodied-rm reads them. Runs in Meta-Environment's environment (metaworld, av)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from scene import ACTION_REPEAT, IMAGE_SIZE, MetaEnvScene

FPS = Fraction(80, ACTION_REPEAT)
SUCCESS_HOLD_STEPS = 30
"""Steps for which a success is held."""
MIN_OBJECT_MOTION_M = 0.005
"""Metres by which the object must have been moved before the second step of the task has begun."""


class EpisodeRecorder:
    """The frames of an episode, and when its task was done."""

    def __init__(self, scene: MetaEnvScene, observation: np.ndarray) -> None:
        self.frames = [scene.render_views()]
        self.success = [False]
        self.object_motion = [0.0]
        self.reach_distance = [float(np.linalg.norm(observation[:3] - observation[4:7]))]
        self.goal_distance = [goal_distance(observation)]
        self._object_start = observation[4:7].copy()

    def add(self, scene: MetaEnvScene, observation: np.ndarray, info: dict[str, float]) -> None:
        """One more frame."""
        self.frames.append(scene.render_views())
        self.success.append(bool(info["success"]))
        self.object_motion.append(float(np.linalg.norm(observation[4:7] - self._object_start)))
        self.reach_distance.append(float(np.linalg.norm(observation[:3] - observation[4:7])))
        self.goal_distance.append(goal_distance(observation))

    def relative_distances(self) -> list[list[float]]:
        """What is left, frame by frame, of the hand's way to the object and of the object's to its goal; first 1."""
        relative = [
            np.clip(np.divide(distances, distances[0] + 1e-9), 0, 1)
            for distances in (self.reach_distance, self.goal_distance)
        ]
        return np.round(np.stack(relative, 1), 4).tolist()

    def subtask_annotations(self) -> list[dict[str, object]]:
        """Of a success: until the object moves, and until the task is done for good."""
        success_frame = len(self.success) - int(np.argmin(self.success[::-1]))
        move_frame = next(
            i for i, distance in enumerate([*self.object_motion, np.inf]) if distance > MIN_OBJECT_MOTION_M
        )
        move_frame = min(max(move_frame, 1), success_frame - 1)
        return [
            {"annotation": "reach", "start_frame_id": 0, "end_frame_id": move_frame},
            {"annotation": "move", "start_frame_id": move_frame, "end_frame_id": success_frame},
        ]

    def write(self, folder: Path) -> None:
        """The outcome last: an episode with it is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        for view in self.frames[0]:
            write_video(folder / f"{view}.mp4", [frame[view] for frame in self.frames])
        if self.success[-1]:
            (folder / "annotated_keyframes.json").write_text(json.dumps(self.subtask_annotations(), indent=1))
        (folder / "ways.json").write_text(json.dumps(self.relative_distances()))
        (folder / "success.json").write_text(json.dumps({"success": self.success[-1]}) + "\n")


def write_instruction(out: Path, scene: MetaEnvScene) -> None:
    """The folder of recordings of a task."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "task_instruction.json").write_text(json.dumps([scene.instruction]) + "\n")


def goal_distance(observation: np.ndarray) -> float:
    """Metres from the object to its goal."""
    return float(np.linalg.norm(observation[4:7] - observation[36:39]))


def write_video(path: Path, images: list[np.ndarray]) -> None:
    """An mp4, hardly compressed."""
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = IMAGE_SIZE
        stream.pix_fmt = "yuv420p"
        stream.options = {"qp": "12", "preset": "veryfast", "bf": "0", "g": "8"}
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
