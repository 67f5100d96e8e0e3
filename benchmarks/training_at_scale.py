"""What mixed precision costs and gains in training: python benchmarks/training_at_scale.py precision

Runs `embodied-rm train` side by side on films drawn for it and prints, for each run, updates a second (of twice as many
updates the additional ones: starting and reading do not count), the ratio to the first run, and peak memory (RSS) of
the largest process.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from embodied_rm.cli.benchmarks import machine
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.types import Episode, Step

VIT = ["tower=vit_small_patch16_224", "image_size=[224,224]", "batch=4", "moments=4", "learning_rate=1e-4"]
FEW, SMALL = {"films": 8, "frames": 32, "side": 224}, {"films": 32, "frames": 32, "side": 64}
CASES = {
    "precision": [
        ("vit_small_patch16_224, float32", FEW, 1, 3, VIT),
        ("vit_small_patch16_224, bfloat16", FEW, 1, 3, [*VIT, "precision=bfloat16"]),
        ("patch_tower_tiny, float32", SMALL, 1, 60, []),
        ("patch_tower_tiny, bfloat16", SMALL, 1, 60, ["precision=bfloat16"]),
    ],
}
"""What is compared: name, data, processes, updates, keys."""


def film(number: int, frames: int, side: int) -> Episode:
    """A square that moves over a plain table; how fast it goes does not depend on what is shown."""
    rng = np.random.default_rng(number)
    pictures = np.full((2, frames, side, side, 3), rng.integers(60, 200, 3), np.uint8)
    for t, x in enumerate(np.linspace(0, side - side // 4, frames).astype(int)):
        pictures[:, t, side // 3 : side // 2, x : x + side // 4] = rng.integers(0, 255, 3)
    return Episode(
        name=f"film_{number}",
        views=dict(zip(("front", "wrist"), pictures, strict=True)),
        instruction=f"do thing {number % 4}",
        fps=10.0,
        steps=(Step(name="reach", start=0, end=frames // 2), Step(name="lift", start=frames // 2, end=frames)),
        success=True,
    )


def written(folder: Path, films: int, frames: int, side: int) -> Path:
    """A dataset of that many films."""
    with DatasetWriter(folder) as writer:
        for number in range(films):
            writer.add(film(number, frames, side))
    return folder


def run(data: Path, out: Path, processes: int, updates: int, keys: list[str]) -> tuple[float, float]:
    """Seconds and peak memory, MB, of a training."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    words = [f"data={data}", f"out={out}", f"updates={updates}", *keys]
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // processes))}
    line = [sys.executable, *launcher, "-m", "embodied_rm", "train", *words]
    child = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(line)} failed")
    return json.loads((out / "metrics.json").read_text())["train"]["seconds"], used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES, help="what is compared")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.info(machine())
    first = None
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, size, processes, updates, keys) in enumerate(CASES[args.case]):
            data = Path(folder) / "-".join(map(str, size.values()))
            if not data.exists():
                written(data, **size)
                first = None
            few, _ = run(data, Path(folder) / f"{i}-few", processes, updates, keys)
            many, memory = run(data, Path(folder) / f"{i}-many", processes, 2 * updates, keys)
            pace = updates / (many - few)
            first = first or pace
            logging.info(f"| {name} | {pace:.3g} updates/s | {pace / first:.2f} | {memory:.0f} MB |")


if __name__ == "__main__":
    main()
