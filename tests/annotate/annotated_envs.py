"""A dataset with frame numbers painted into its images, serve_dataset as by `embodied-rm annotate`."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from server_threads import serve_in_thread

from embodied_rm.annotate.annotation_server import AnnotationServer
from embodied_rm.annotate.local_page import LocalPageServer
from embodied_rm.annotate.proposals import change_point_proposer
from embodied_rm.annotate.session import AnnotationSession
from embodied_rm.data.open_dataset import open_annotations, open_dataset
from embodied_rm.data.video.files import write_video
from embodied_rm.types import Frames, IntArray

LENGTH, FPS = 60, 10
VIEWS = {"left": 0, "right": 1000, "top": 2000}
"""View -> the number painted into its first frame."""
SUBTASK_ENTRIES = [
    {"annotation": "reach", "start_frame_id": 5, "end_frame_id": 20},
    {"annotation": "grasp", "start_frame_id": 20, "end_frame_id": 40},
    {"annotation": "lift", "start_frame_id": 40, "end_frame_id": 60},
]
BITS = 12


def paint_frames(numbers: IntArray | range, height: int, width: int) -> Frames:
    """uint8 [T, H, W, 3]: each frame's number as a row of dark and bright blocks."""
    bits = (np.asarray(numbers)[:, None] >> np.arange(BITS)) & 1
    levels = np.where(bits, 210, 40).astype(np.uint8)
    row = np.repeat(levels, -(-width // BITS), axis=1)[:, :width]
    return np.broadcast_to(row[:, None, :, None], (len(row), height, width, 3)).copy()


def read_number(frame: Frames) -> int:
    """Decode the number painted into uint8 [H, W, 3 or more]."""
    width = frame.shape[1]
    centers = ((np.arange(BITS) + 0.5) * -(-width // BITS)).astype(int)
    return int(sum(1 << bit for bit, x in enumerate(centers) if frame[:, x, :3].mean() > 125))


def make_recordings(folder: Path) -> Path:
    """Two recordings of three views of different sizes; only the first has subtasks."""
    for index, name in enumerate(("cup_0", "cup_1")):
        (folder / name).mkdir(parents=True)
        for view, first_number in VIEWS.items():
            numbers = range(first_number + 100 * index, first_number + 100 * index + LENGTH)
            size = (48, 96) if view == "left" else (72, 120)
            write_video(folder / name / f"{view}.mp4", paint_frames(numbers, *size), FPS)
    (folder / "cup_0" / "annotated_keyframes.json").write_text(json.dumps(SUBTASK_ENTRIES, indent=4))
    (folder / "task_instruction.json").write_text('["put the cup away"]')
    return folder


@contextmanager
def serve_dataset(folder: Path, subtask_names: tuple[str, ...] = ()) -> Iterator[AnnotationServer]:
    """Serve the dataset from a thread."""
    source = open_dataset(folder)
    session = AnnotationSession(
        source, open_annotations(folder, source), change_point_proposer(subtask_names), subtask_names
    )
    server = AnnotationServer(session, 0)
    with serve_in_thread(server):
        yield server


@dataclass(frozen=True)
class Response:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def send_request(
    server: LocalPageServer,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    token: str | None = None,
    **headers: str,
) -> Response:
    """Send one request; `token` replaces the correct one. `_` in a header name stands for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"/{server.token if token is None else token}/{path}", body, request_headers)
        response = connection.getresponse()
        return Response(response.status, dict(response.headers), response.read())
    finally:
        connection.close()
