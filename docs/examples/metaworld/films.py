"""Films of episodes of Meta-World as embodied-rm reads them. Runs in Meta-World's environment (metaworld, av)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from scene import EVERY, SIDE, Scene

FPS = Fraction(80, EVERY)
TAIL = 30
"""Steps for which a success is held."""
MOVED = 0.005
"""Metres by which the object must have been moved before the second step of the task has begun."""


class Film:
    """The frames of an episode, and when its task was done."""

    def __init__(self, scene: Scene, observation: np.ndarray) -> None:
        self.frames = [scene.look()]
        self.done = [False]
        self.moved = [0.0]
        self.reach = [float(np.linalg.norm(observation[:3] - observation[4:7]))]
        self.left = [way(observation)]
        self._at = observation[4:7].copy()

    def add(self, scene: Scene, observation: np.ndarray, info: dict[str, float]) -> None:
        """One more frame."""
        self.frames.append(scene.look())
        self.done.append(bool(info["success"]))
        self.moved.append(float(np.linalg.norm(observation[4:7] - self._at)))
        self.reach.append(float(np.linalg.norm(observation[:3] - observation[4:7])))
        self.left.append(way(observation))

    def ways(self) -> list[list[float]]:
        """What is left, frame by frame, of the hand's way to the object and of the object's to its goal; first 1."""
        left = [np.clip(np.divide(way, way[0] + 1e-9), 0, 1) for way in (self.reach, self.left)]
        return np.round(np.stack(left, 1), 4).tolist()

    def steps(self) -> list[dict[str, object]]:
        """Of a success: until the object moves, and until the task is done for good."""
        done = len(self.done) - int(np.argmin(self.done[::-1]))
        moves = next(i for i, distance in enumerate([*self.moved, np.inf]) if distance > MOVED)
        moves = min(max(moves, 1), done - 1)
        return [
            {"annotation": "reach", "start_frame_id": 0, "end_frame_id": moves},
            {"annotation": "move", "start_frame_id": moves, "end_frame_id": done},
        ]

    def write(self, folder: Path) -> None:
        """The outcome last: an episode with it is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        for view in self.frames[0]:
            write_film(folder / f"{view}.mp4", [frame[view] for frame in self.frames])
        if self.done[-1]:
            (folder / "annotated_keyframes.json").write_text(json.dumps(self.steps(), indent=1))
        (folder / "ways.json").write_text(json.dumps(self.ways()))
        (folder / "success.json").write_text(json.dumps({"success": self.done[-1]}) + "\n")


def begin_recordings(out: Path, scene: Scene) -> None:
    """The folder of recordings of a task."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "task_instruction.json").write_text(json.dumps([scene.instruction]) + "\n")


def way(observation: np.ndarray) -> float:
    """Metres from the object to its goal."""
    return float(np.linalg.norm(observation[4:7] - observation[36:39]))


def write_film(path: Path, pictures: list[np.ndarray]) -> None:
    """An mp4, hardly compressed."""
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.options = {"qp": "12", "preset": "veryfast", "bf": "0", "g": "8"}
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
