"""Convert recordings of record.py to a LeRobot v3.0 dataset with the progress of failures.

    python convert.py runs/metaworld/drawer-open-v3/held_out \
        --successes runs/metaworld/drawer-open-v3/demos --out runs/metaworld/drawer-open-v3/held_out_lerobot

The progress of a failed episode is estimated from successful frames with similar remaining distances. The simulator
writes these distances, of the hand to the object and of the object to its goal, to distances.json. Runs in the Python
environment of embodied-rm.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.labels.true_progress import true_progress
from embodied_rm.types import Array, Episode

NUM_NEIGHBORS = 5
"""Successful frames from which the progress of a failed frame is estimated."""
MAX_FAILURE_PROGRESS = 0.95
"""Maximum progress of a failed frame."""


def read_distances(folder: Path, episode: Episode) -> Array:
    """Return the relative remaining distances [T, 2] of the hand to the object and of the object to its goal."""
    return np.asarray(json.loads((folder / episode.name / "distances.json").read_text()), np.float32)


def estimate_progress(distances: Array, known_distances: Array, known_progress: Array) -> Array:
    """Estimate progress [T] from distances [T, 2], as the mean progress of the nearest known frames.

    Args:
        distances: [T, 2].
        known_distances: Distances of successful frames [N, 2].
        known_progress: Progress of these frames [N].
    """
    distance = np.linalg.norm(distances[:, None] - known_distances[None], axis=-1)
    nearest = np.argpartition(distance, NUM_NEIGHBORS, axis=1)[:, :NUM_NEIGHBORS]
    return np.minimum(known_progress[nearest].mean(1), MAX_FAILURE_PROGRESS).astype(np.float32)


def success_samples(successes: Path) -> tuple[Array, Array]:
    """Return the distances [N, 2] and the progress [N] of all frames of a folder's successes."""
    examples = [
        (read_distances(successes, episode), true_progress(episode))
        for episode in open_dataset(successes)
        if episode.success
    ]
    distances, progress = (np.concatenate(arrays) for arrays in zip(*examples, strict=True))
    return distances, progress


def write_dataset(folders: Sequence[Path], out: Path, successes: Path, max_episodes: int | None = None) -> None:
    """Write a dataset of the first `max_episodes` episodes of each folder, or of all.

    The progress of successes follows from their subtasks, that of failures from the episodes in `successes`.
    """
    samples = success_samples(successes)
    with DatasetWriter(out, robot_type="sawyer") as writer:
        for folder in folders:
            for episode in islice(open_dataset(folder), max_episodes):
                progress = (
                    true_progress(episode)
                    if episode.success
                    else estimate_progress(read_distances(folder, episode), *samples)
                )
                writer.add(replace(episode, name=f"{folder.name}_{episode.name}", progress=progress))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--successes", type=Path, required=True, help="folder with the successes for the estimate")
    parser.add_argument("--max-episodes", type=int, help="first episodes of each folder; all by default")
    args = parser.parse_args()
    write_dataset(args.folders, args.out, args.successes, args.max_episodes)


if __name__ == "__main__":
    main()
