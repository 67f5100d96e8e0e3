"""What training at scale costs and gains: python benchmarks/training_at_scale.py precision|stream|held

Runs `embodied-rm train` side by side on videos drawn for it and prints, for each run, updates a second (of twice as many
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

from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.distributed import SINGLE_PROCESS, DistContext, init_distributed
from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.train import TrainConfig, fitting, train
from embodied_rm.types import Episode, Subtask

VIT_SETTINGS = ["tower=vit_small_patch16_224", "image_size=[224,224]", "batch=4", "moments=4", "learning_rate=1e-4"]
LARGE_DATASET = {"videos": 300, "frames": 80, "side": 64}
SMALL_VIT_DATASET, SMALL_DATASET = {"videos": 8, "frames": 32, "side": 224}, {"videos": 32, "frames": 32, "side": 64}
BENCHMARK_CASES = {
    "precision": [
        ("vit_small_patch16_224, float32", SMALL_VIT_DATASET, 1, 3, VIT_SETTINGS),
        ("vit_small_patch16_224, bfloat16", SMALL_VIT_DATASET, 1, 3, [*VIT_SETTINGS, "precision=bfloat16"]),
        ("patch_tower_tiny, float32", SMALL_DATASET, 1, 60, []),
        ("patch_tower_tiny, bfloat16", SMALL_DATASET, 1, 60, ["precision=bfloat16"]),
    ],
    "stream": [
        ("in memory", LARGE_DATASET, 1, 60, []),
        ("memory_gb=0.1", LARGE_DATASET, 1, 60, ["memory_gb=0.1"]),
    ],
}
"""What is compared: name, data, processes, updates, keys."""


def make_episode(index: int, frames: int, image_size: int) -> Episode:
    """A square that moves over a plain table; how fast it goes does not depend on what is shown."""
    rng = np.random.default_rng(index)
    images = np.full((2, frames, image_size, image_size, 3), rng.integers(60, 200, 3), np.uint8)
    for t, x in enumerate(np.linspace(0, image_size - image_size // 4, frames).astype(int)):
        images[:, t, image_size // 3 : image_size // 2, x : x + image_size // 4] = rng.integers(0, 255, 3)
    return Episode(
        name=f"video_{index}",
        views=dict(zip(("front", "wrist"), images, strict=True)),
        instruction=f"do thing {index % 4}",
        fps=10.0,
        subtasks=(Subtask(name="reach", start=0, end=frames // 2), Subtask(name="lift", start=frames // 2, end=frames)),
        success=True,
    )


def write_dataset(folder: Path, num_videos: int, num_frames: int, image_size: int) -> Path:
    """A dataset of that many videos."""
    with DatasetWriter(folder) as writer:
        for index in range(num_videos):
            writer.add(make_episode(index, num_frames, image_size))
    return folder


def run_training(
    data: Path, out: Path, processes: int, num_steps: int, extra_settings: list[str]
) -> tuple[float, float]:
    """Seconds and peak memory, MB, of a training."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    settings = [f"data={data}", f"out={out}", f"updates={num_steps}", *extra_settings]
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // processes))}
    command = [sys.executable, *launcher, "-m", "embodied_rm", "train", *settings]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return json.loads((out / "metrics.json").read_text())["train"]["seconds"], usage.ru_maxrss / 1024


def log_process_memory(shard: bool) -> None:
    """Print what this process, one of two, has in memory after an update of a large tower, and how long that took."""
    step_times = [time.perf_counter()]

    class MemoryLoggingTrainState(fitting.TrainState):
        def update(self, losses: Iterable[Tensor], learning_rate: float, group: DistContext = SINGLE_PROCESS) -> float:
            norm = super().update(losses, learning_rate, group)
            step_times.append(time.perf_counter())
            duration = step_times[-1] - step_times[-2]
            logging.info(
                f"shard={shard}: process {group.rank}: {resident_mb():.0f} MB, {duration:.1f} s since the last"
            )
            return norm

    fitting.TrainState = MemoryLoggingTrainState  # type: ignore[misc]
    config = TrainConfig(
        tower="vit_base_patch16_224", image_size=(224, 224), batch_size=2, frames_per_episode=3, steps=6
    )
    episodes = [make_episode(index, 32, 224) for index in range(4)]
    with tempfile.TemporaryDirectory() as folder, init_distributed("cpu") as group:
        train(episodes, config, RunFolder.open(Path(folder)), NullReporter(), group=group, fsdp=shard)


def resident_mb() -> float:
    """MB that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[*BENCHMARK_CASES, "held"], help="what is compared")
    parser.add_argument("--shard", action="store_true", help="of held: share the tower")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.case == "held":
        log_process_memory(args.shard)
        return
    logging.info(describe_machine())
    first_rate = None
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, dataset_size, processes, num_steps, extra_settings) in enumerate(BENCHMARK_CASES[args.case]):
            data = Path(folder) / "-".join(map(str, dataset_size.values()))
            if not data.exists():
                write_dataset(data, **dataset_size)
                first_rate = None
            short_s, _ = run_training(data, Path(folder) / f"{i}-few", processes, num_steps, extra_settings)
            long_s, memory = run_training(data, Path(folder) / f"{i}-many", processes, 2 * num_steps, extra_settings)
            steps_per_s = num_steps / (long_s - short_s)
            first_rate = first_rate or steps_per_s
            logging.info(f"| {name} | {steps_per_s:.3g} updates/s | {steps_per_s / first_rate:.2f} | {memory:.0f} MB |")


if __name__ == "__main__":
    main()
