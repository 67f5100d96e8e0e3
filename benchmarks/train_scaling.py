"""Speed and memory of training at scale: python benchmarks/train_scaling.py precision|stream|memory

Runs `embodied-rm train` on synthetic videos. Prints, for each run, steps per second, the ratio to the first run, and
the peak memory (RSS) of the largest process. Start-up does not count, because the speed is that of the additional
steps of a run twice as long. The peak includes writing the checkpoint, for which the first process gathers all weights.
`memory` shows the memory of each of two processes between steps.
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
from embodied_rm.training import Execution, TrainConfig, fitting, train
from embodied_rm.types import Episode, Subtask

VIT_SETTINGS = [
    "encoder=vit_small_patch16_224",
    "image_size=[224,224]",
    "batch_size=4",
    "frames_per_episode=4",
    "learning_rate=1e-4",
]
LARGE_DATASET = {"num_videos": 300, "num_frames": 80, "image_size": 64}
SMALL_VIT_DATASET = {"num_videos": 8, "num_frames": 32, "image_size": 224}
SMALL_DATASET = {"num_videos": 32, "num_frames": 32, "image_size": 64}
BENCHMARK_CASES = {
    "precision": [
        ("vit_small_patch16_224, float32", SMALL_VIT_DATASET, 1, 3, VIT_SETTINGS),
        ("vit_small_patch16_224, bfloat16", SMALL_VIT_DATASET, 1, 3, [*VIT_SETTINGS, "precision=bfloat16"]),
        ("patch_tower_tiny, float32", SMALL_DATASET, 1, 60, []),
        ("patch_tower_tiny, bfloat16", SMALL_DATASET, 1, 60, ["precision=bfloat16"]),
    ],
    "stream": [
        ("in memory", LARGE_DATASET, 1, 60, []),
        ("frame_cache_gb=0.1", LARGE_DATASET, 1, 60, ["frame_cache_gb=0.1"]),
    ],
}
"""Compared runs: name, dataset, processes, steps, settings."""


def make_episode(index: int, frames: int, image_size: int) -> Episode:
    """Return an episode of a moving square; the speed does not depend on the content."""
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
    """Write a dataset and return its folder."""
    with DatasetWriter(folder) as writer:
        for index in range(num_videos):
            writer.add(make_episode(index, num_frames, image_size))
    return folder


def run_training(
    data: Path, out: Path, processes: int, num_steps: int, extra_settings: list[str]
) -> tuple[float, float]:
    """Train a model and return the seconds and the peak memory, MB."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    settings = [f"data={data}", f"out={out}", f"steps={num_steps}", *extra_settings]
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // processes))}
    command = [sys.executable, *launcher, "-m", "embodied_rm", "train", *settings]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return json.loads((out / "metrics.json").read_text())["train"]["seconds"], usage.ru_maxrss / 1024


def log_process_memory(fsdp: bool) -> None:
    """Print the memory of this process, one of two, after each step of a large tower, and the seconds of the step."""
    step_times = [time.perf_counter()]

    class MemoryLoggingTrainState(fitting.TrainState):
        def update(self, losses: Iterable[Tensor], learning_rate: float, group: DistContext = SINGLE_PROCESS) -> float:
            norm = super().update(losses, learning_rate, group)
            step_times.append(time.perf_counter())
            duration = step_times[-1] - step_times[-2]
            logging.info(
                f"fsdp={fsdp}: process {group.rank}: {resident_mb():.0f} MB, {duration:.1f} s since the last step"
            )
            return norm

    fitting.TrainState = MemoryLoggingTrainState  # type: ignore[misc]
    config = TrainConfig(
        encoder="vit_base_patch16_224", image_size=(224, 224), batch_size=2, frames_per_episode=3, steps=6
    )
    episodes = [make_episode(index, 32, 224) for index in range(4)]
    with tempfile.TemporaryDirectory() as folder, init_distributed("cpu") as group:
        execution = Execution(group=group, fsdp=fsdp)
        train(episodes, config, RunFolder.open(Path(folder)), NullReporter(), execution=execution)


def resident_mb() -> float:
    """Return the resident memory of this process, MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[*BENCHMARK_CASES, "memory"], help="the comparison")
    parser.add_argument("--fsdp", action="store_true", help="memory: shard the tower")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.case == "memory":
        log_process_memory(args.fsdp)
        return
    logging.info(describe_machine())
    first_rate = None
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, dataset_size, processes, num_steps, extra_settings) in enumerate(BENCHMARK_CASES[args.case]):
            data = Path(folder) / "-".join(map(str, dataset_size.values()))
            if not data.exists():
                write_dataset(data, **dataset_size)
                first_rate = None
            short_s, _ = run_training(data, Path(folder) / f"{i}-short", processes, num_steps, extra_settings)
            long_s, memory = run_training(data, Path(folder) / f"{i}-long", processes, 2 * num_steps, extra_settings)
            steps_per_s = num_steps / (long_s - short_s)
            first_rate = first_rate or steps_per_s
            logging.info(f"| {name} | {steps_per_s:.3g} steps/s | {steps_per_s / first_rate:.2f} | {memory:.0f} MB |")


if __name__ == "__main__":
    main()
