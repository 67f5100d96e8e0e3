"""What record.py recorded, in one or more folders, as a LeRobot v3.0 dataset that says how far failures came.

    python dataset.py runs/metaworld/drawer-open-v3/held_out --out runs/metaworld/drawer-open-v3/held_out_lerobot

Films do not say how far a failure came: the simulator did, in progress.json. Runs where embodied-rm is installed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from embodied_rm.data.catalog import open_data
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.labels.hops import true_progress
from embodied_rm.types import Episode


def episodes(folder: Path) -> Iterator[Episode]:
    """Those of a folder; the progress of successes is that of their steps."""
    for episode in open_data(folder):
        told = folder / episode.name / "progress.json"
        if episode.success:
            progress = true_progress(episode)
        else:
            progress = np.asarray(json.loads(told.read_text()), np.float32)
        yield replace(episode, progress=progress)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with DatasetWriter(args.out, robot_type="sawyer") as writer:
        for folder in args.folders:
            for episode in episodes(folder):
                writer.add(episode)


if __name__ == "__main__":
    main()
