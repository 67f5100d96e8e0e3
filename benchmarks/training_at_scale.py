"""What training at scale costs and gains: python benchmarks/training_at_scale.py precision|stream|held

Runs `embodied-rm train` side by side on films drawn for it and prints, for each run, updates a second (of twice as many
updates the additional ones: starting and reading do not count), the ratio to the first run, and peak memory (RSS) of
the largest process. That includes writing the checkpoint, which the first process does with all of the weights; `held`
shows what each of two processes holds between the updates.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from torch import Tensor

from embodied_rm.cli.benchmarks import machine
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.group import ALONE, Group, joined
from embodied_rm.run import RunFolder, Silent
from embodied_rm.train import TrainConfig, fitting, train
from embodied_rm.types import Episode, Step

VIT = ["tower=vit_small_patch16_224", "image_size=[224,224]", "batch=4", "moments=4", "learning_rate=1e-4"]
MANY = {"films": 300, "frames": 80, "side": 64}
FEW, SMALL = {"films": 8, "frames": 32, "side": 224}, {"films": 32, "frames": 32, "side": 64}
CASES = {
    "precision": [
        ("vit_small_patch16_224, float32", FEW, 1, 3, VIT),
        ("vit_small_patch16_224, bfloat16", FEW, 1, 3, [*VIT, "precision=bfloat16"]),
        ("patch_tower_tiny, float32", SMALL, 1, 60, []),
        ("patch_tower_tiny, bfloat16", SMALL, 1, 60, ["precision=bfloat16"]),
    ],
    "stream": [
        ("in memory", MANY, 1, 60, []),
        ("memory_gb=0.1", MANY, 1, 60, ["memory_gb=0.1"]),
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


def held(shard: bool) -> None:
    """Print what this process, one of two, has in memory after an update of a large tower, and how long that took."""
    ended = [time.perf_counter()]

    class Watched(fitting.Learner):
        def update(self, losses: Iterable[Tensor], learning_rate: float, group: Group = ALONE) -> float:
            norm = super().update(losses, learning_rate, group)
            ended.append(time.perf_counter())
            took = ended[-1] - ended[-2]
            logging.info(f"shard={shard}: process {group.rank}: {resident():.0f} MB, {took:.1f} s since the last")
            return norm

    fitting.Learner = Watched  # type: ignore[misc]
    config = TrainConfig(tower="vit_base_patch16_224", image_size=(224, 224), batch=2, moments=3, updates=6)
    films = [film(number, 32, 224) for number in range(4)]
    with tempfile.TemporaryDirectory() as folder, joined("cpu") as group:
        train(films, config, RunFolder.open(Path(folder)), Silent(), group=group, shard=shard)


def resident() -> float:
    """MB that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[*CASES, "held"], help="what is compared")
    parser.add_argument("--shard", action="store_true", help="of held: share the tower")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.case == "held":
        held(args.shard)
        return
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
