"""What record.py recorded, in one or more folders, as a LeRobot v3.0 dataset that says how far failures came.

    python dataset.py runs/metaworld/drawer-open-v3/held_out \
        --successes runs/metaworld/drawer-open-v3/demos --out runs/metaworld/drawer-open-v3/held_out_lerobot

Videos do not say how far a failure came: the successes that came as near do, by ways.json, in which the simulator said
what was left of the ways of hand and object. Runs where embodied-rm is installed.
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
from embodied_rm.labels.hops import true_progress
from embodied_rm.types import Array, Episode

NUM_NEIGHBORS = 5
"""Moments of successes that say how far a failure came."""
MAX_FAILURE_PROGRESS = 0.95
"""Progress that no failure passes."""


def read_distances(folder: Path, episode: Episode) -> Array:
    """[T, 2]: what is left of the hand's way to the object, and of the object's to its goal."""
    return np.asarray(json.loads((folder / episode.name / "ways.json").read_text()), np.float32)


def estimate_progress(distances: Array, known_distances: Array, known_progress: Array) -> Array:
    """Progress [T] at `left` [T, 2]: the mean of that [N] at the nearest of the moments `known` [N, 2]."""
    distance = np.linalg.norm(distances[:, None] - known_distances[None], axis=-1)
    nearest = np.argpartition(distance, NUM_NEIGHBORS, axis=1)[:, :NUM_NEIGHBORS]
    return np.minimum(known_progress[nearest].mean(1), MAX_FAILURE_PROGRESS).astype(np.float32)


def success_samples(successes: Path) -> tuple[Array, Array]:
    """Of all moments of a folder's successes: what was left of the ways, [N, 2], and the progress, [N]."""
    examples = [
        (read_distances(successes, episode), true_progress(episode))
        for episode in open_dataset(successes)
        if episode.success
    ]
    distances, progress = (np.concatenate(arrays) for arrays in zip(*examples, strict=True))
    return distances, progress


def write_dataset(folders: Sequence[Path], out: Path, successes: Path, max_episodes: int | None = None) -> None:
    """A dataset of the first `most` episodes of each folder, or of all. The progress of successes is that of their
    steps, that of failures the progress that those in `successes` had made when they had come as near."""
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
    parser.add_argument("--successes", type=Path, required=True, help="folder whose successes say how far others came")
    parser.add_argument("--most", type=int, help="first episodes of each folder; all by default")
    args = parser.parse_args()
    write_dataset(args.folders, args.out, args.successes, args.most)


if __name__ == "__main__":
    main()
