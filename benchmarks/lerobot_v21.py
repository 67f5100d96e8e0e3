"""Writer of LeRobot v2.1 datasets in the layout of `lerobot` 0.3: one file per episode, lists as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.data.video.files import write_video
from embodied_rm.types import Episode

DATA_PATH = "data/chunk-{0:03d}/episode_{1:06d}.parquet"
VIDEO_PATH = "videos/chunk-{0:03d}/observation.images.{2}/episode_{1:06d}.mp4"
EPISODES_PER_CHUNK = 2
"""Episodes per folder; usually 1000."""


def write_v21_dataset(root: Path, episodes: Sequence[Episode]) -> Path:
    """Write the episodes as a v2.1 dataset and return its root."""
    tasks = list(dict.fromkeys(episode.instruction for episode in episodes))
    start = 0
    for i, episode in enumerate(episodes):
        for view, frames in episode.views.items():
            path = root / VIDEO_PATH.format(i // EPISODES_PER_CHUNK, i, view)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_video(path, frames, episode.fps)
        write_rows(
            root / DATA_PATH.format(i // EPISODES_PER_CHUNK, i), episode, i, start, tasks.index(episode.instruction)
        )
        start += len(episode)
    write_meta(root, episodes, tasks, start)
    return root


def write_rows(path: Path, episode: Episode, index: int, start: int, task: int) -> None:
    frame_indices = np.arange(len(episode))
    assert episode.state is not None and episode.action is not None
    columns = {
        "observation.state": pa.array(list(episode.state), pa.list_(pa.float32())),
        "action": pa.array(list(episode.action), pa.list_(pa.float32())),
        "timestamp": pa.array((frame_indices / episode.fps).astype(np.float32)),
        "frame_index": pa.array(frame_indices),
        "episode_index": pa.array(np.full(len(episode), index)),
        "index": pa.array(start + frame_indices),
        "task_index": pa.array(np.full(len(episode), task)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_meta(root: Path, episodes: Sequence[Episode], tasks: Sequence[str], frames: int) -> None:
    first_episode = episodes[0]
    assert first_episode.state is not None and first_episode.action is not None
    height, width = next(iter(first_episode.views.values())).shape[1:3]
    axis_names = ["height", "width", "channels"]
    int_feature = {"dtype": "int64", "shape": [1], "names": None}
    features = {
        "observation.state": {"dtype": "float32", "shape": [first_episode.state.shape[1]], "names": None},
        "action": {"dtype": "float32", "shape": [first_episode.action.shape[1]], "names": None},
        **{
            f"observation.images.{view}": {"dtype": "video", "shape": [height, width, 3], "names": axis_names}
            for view in first_episode.views
        },
        "timestamp": {**int_feature, "dtype": "float32"},
        **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), int_feature),
    }
    info = {
        "codebase_version": "v2.1",
        "robot_type": "arm",
        "total_episodes": len(episodes),
        "total_frames": frames,
        "total_tasks": len(tasks),
        "total_videos": len(episodes) * len(first_episode.views),
        "total_chunks": -(-len(episodes) // EPISODES_PER_CHUNK),
        "chunks_size": EPISODES_PER_CHUNK,
        "fps": first_episode.fps,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features,
    }
    (root / "meta").mkdir()
    (root / "meta" / "info.json").write_text(json.dumps(info))
    entries = [{"episode_index": i, "tasks": [e.instruction], "length": len(e)} for i, e in enumerate(episodes)]
    (root / "meta" / "episodes.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    task_entries = [{"task_index": i, "task": task} for i, task in enumerate(tasks)]
    (root / "meta" / "tasks.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in task_entries))
