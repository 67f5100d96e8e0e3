"""Recorder of Meta-World episodes as videos. Runs in Meta-World's Python environment (metaworld, av)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from scene import ACTION_REPEAT, IMAGE_SIZE, MetaWorldScene

FPS = Fraction(80, ACTION_REPEAT)
SUCCESS_HOLD_STEPS = 30
"""Steps for which a success must hold."""
MIN_OBJECT_MOTION_M = 0.005
"""Motion of the object at which the subtask `move` starts, m."""


class EpisodeRecorder:
    """Frames, success and distances of an episode."""

    def __init__(self, scene: MetaWorldScene, observation: np.ndarray) -> None:
        self.frames = [scene.render_views()]
        self.success = [False]
        self.object_motion = [0.0]
        self.reach_distance = [float(np.linalg.norm(observation[:3] - observation[4:7]))]
        self.goal_distance = [goal_distance(observation)]
        self._object_start = observation[4:7].copy()

    def add(self, scene: MetaWorldScene, observation: np.ndarray, info: dict[str, float]) -> None:
        """Add a frame."""
        self.frames.append(scene.render_views())
        self.success.append(bool(info["success"]))
        self.object_motion.append(float(np.linalg.norm(observation[4:7] - self._object_start)))
        self.reach_distance.append(float(np.linalg.norm(observation[:3] - observation[4:7])))
        self.goal_distance.append(goal_distance(observation))

    def relative_distances(self) -> list[list[float]]:
        """Return the remaining distances per frame, of hand to object and object to goal, relative to the first."""
        relative = [
            np.clip(np.divide(distances, distances[0] + 1e-9), 0, 1)
            for distances in (self.reach_distance, self.goal_distance)
        ]
        return np.round(np.stack(relative, 1), 4).tolist()

    def subtask_annotations(self) -> list[dict[str, object]]:
        """Return the subtasks of a success: `reach` until the object moves, `move` until success is final."""
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
        """Write the episode; success.json comes last and marks it as complete."""
        folder.mkdir(parents=True, exist_ok=True)
        for view in self.frames[0]:
            write_video(folder / f"{view}.mp4", [frame[view] for frame in self.frames])
        if self.success[-1]:
            (folder / "annotated_keyframes.json").write_text(json.dumps(self.subtask_annotations(), indent=1))
        (folder / "distances.json").write_text(json.dumps(self.relative_distances()))
        (folder / "success.json").write_text(json.dumps({"success": self.success[-1]}) + "\n")


def write_instruction(out: Path, scene: MetaWorldScene) -> None:
    """Write the task's instruction to the folder of its recordings."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "task_instruction.json").write_text(json.dumps([scene.instruction]) + "\n")


def goal_distance(observation: np.ndarray) -> float:
    """Return the distance of the object from its goal, m."""
    return float(np.linalg.norm(observation[4:7] - observation[36:39]))


def write_video(path: Path, images: list[np.ndarray]) -> None:
    """Write an mp4 with little compression."""
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = IMAGE_SIZE
        stream.pix_fmt = "yuv420p"
        stream.options = {"qp": "12", "preset": "veryfast", "bf": "0", "g": "8"}
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
