"""What record.py recorded, in one or more folders, as a LeRobot v3.0 dataset that says how far failures came.

    python dataset.py runs/metaworld/drawer-open-v3/held_out --out runs/metaworld/drawer-open-v3/held_out_lerobot

Films do not say how far a failure came: the simulator did, in progress.json. Runs where embodied-rm is installed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from embodied_rm.data.catalog import open_data
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.labels.hops import true_progress
from embodied_rm.types import Episode


def episodes(folder: Path) -> Iterator[Episode]:
    """Those of a folder; the progress of successes is that of their steps."""
    for episode in open_data(folder):
        if episode.success:
            yield replace(episode, progress=true_progress(episode))
        else:
            told = json.loads((folder / episode.name / "progress.json").read_text())
            yield replace(episode, progress=np.asarray(told, np.float32))


def write(folders: Sequence[Path], out: Path, most: int | None = None) -> None:
    """A dataset of the first `most` episodes of each folder, or of all."""
    with DatasetWriter(out, robot_type="sawyer") as writer:
        for folder in folders:
            for episode in islice(episodes(folder), most):
                writer.add(episode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, help="first episodes of each folder; all by default")
    args = parser.parse_args()
    write(args.folders, args.out, args.most)


if __name__ == "__main__":
    main()
