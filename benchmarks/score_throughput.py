"""Throughput of scoring a dataset with different engines: python benchmarks/score_throughput.py

Cuts a LeRobot dataset of 100 episodes, 60 to 120 frames of three views each, from the recordings in `--recordings`
(640x480). Then, interleaved and `--rounds` times, decodes it without scoring, and scores it as `embodied-rm score`
without plots and videos: in this process, in two processes, and on Ray with one and two actors. The model has the
bundled model's architecture. All score tables must be byte-identical. Writes its section of docs/results/benchmarks.md.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

from embodied_rm.data.block_reader import iter_blocks
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.experiments.results_page import write_section
from embodied_rm.models.checkpoint import load_progress_net, model_digest, save_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import TABLE_FILE, ScoreConfig, Scorer, score_corpus
from embodied_rm.types import Episode

RECORDINGS_DIR = Path("../shared/data/real_bimanual")
NUM_EPISODES = 100
MIN_FRAMES, MAX_FRAMES = 60, 120
"""Frames per episode."""
TARGET_SHARE = 0.8
"""Required fraction of the decoding speed."""
DECODE_ONLY, IN_PROCESS = "decoding only", "this process"
ENGINE_SETTINGS: dict[str, dict[str, object]] = {
    IN_PROCESS: {},
    "two processes": {"num_workers": 2},
    "Ray, one actor": {"engine": "ray"},
    "Ray, two actors": {"engine": "ray", "num_workers": 2},
}


def make_dataset(folder: Path, recordings: Path, num_episodes: int) -> LeRobotDataset:
    """Cut episodes from recordings into a dataset, or open the dataset if the folder exists."""
    if folder.exists():
        return LeRobotDataset(folder)
    source, rng = open_dataset(recordings), np.random.default_rng(0)
    with DatasetWriter(folder) as writer:
        for index in range(num_episodes):
            row, length = int(rng.integers(len(source))), int(rng.integers(MIN_FRAMES, MAX_FRAMES + 1))
            meta = source.meta[row]
            start = int(rng.integers(meta.length - length))
            size = source.image_size(row)
            frames = source.read_frames(row, start, start + length, views=source.views, size=size).frames
            views = {name: np.ascontiguousarray(frames[:, v]) for v, name in enumerate(source.views)}
            name, fps = f"episode_{index:06d}", source.frame_rate(row)
            writer.add(Episode(name=name, views=views, instruction=meta.instruction, fps=fps))
            logging.info("episode %d of %d is written", index + 1, num_episodes)
    return LeRobotDataset(folder)


def save_model(folder: Path, views: Sequence[str]) -> Path:
    """Save a model with the bundled architecture and random weights; weights do not change the speed."""
    torch.manual_seed(0)
    config = replace(load_progress_net(BUNDLED_CHECKPOINT).config, views=tuple(views))
    save_progress_net(folder, ProgressNet(config).eval(), {})
    return folder


def open_model(folder: Path) -> Scorer:
    """Open the model; called in every worker."""
    return Scorer(model=load_progress_net(folder))


def decode_all(source: LeRobotDataset, model: Path) -> None:
    """Decode the images that scoring reads."""
    input_spec = open_model(model).model.input_spec
    views = input_spec.select_views(source.views, "the recording")
    deque(iter_blocks(source, range(len(source)), views, input_spec.image_size), maxlen=0)


def score_all(source: LeRobotDataset, model: Path, out: Path, settings: Mapping[str, object]) -> str:
    """Score the dataset and return the SHA-256 of the table."""
    run = RunFolder.open(Path(tempfile.mkdtemp(dir=out)))
    config = ScoreConfig(plots=False, videos=False, **settings)  # type: ignore[arg-type]
    score_corpus(partial(open_model, model), source, config, run, NullReporter(), {"model": model_digest(model)})
    return hashlib.sha256((run.path / TABLE_FILE).read_bytes()).hexdigest()


def time_call(call: Callable[[], object]) -> tuple[float, object]:
    """Return the seconds and the result of a call."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def results_section(source: LeRobotDataset, seconds: Mapping[str, list[float]], digests: set[str], command: str) -> str:
    """Return the results as Markdown."""
    frames = sum(meta.length for meta in source.meta) * len(source.views)
    height, width = source.image_size(0)
    decode_shares = {
        name: median(decode_s / engine_s for decode_s, engine_s in zip(seconds[DECODE_ONLY], durations, strict=True))
        for name, durations in seconds.items()
    }
    rows = [
        f"| {name} | {median(durations):.1f} | {frames / median(durations):,.0f} | {decode_shares[name]:.2f} |"
        for name, durations in seconds.items()
    ]
    digest_summary = "byte-identical" if len(digests) == 1 else f"{len(digests)} different versions"
    return "\n".join([
        "## Scoring a dataset",
        "",
        f"`{command}`: {len(source)} episodes, {frames:,} images of {len(source.views)} views, {width}x{height}, "
        "LeRobot v3.0; the bundled model's architecture; without plots and videos. "
        f"Medians of {len(seconds[DECODE_ONLY])} interleaved rounds; the fraction is a median over rounds. "
        "The start of processes, actors and Ray counts.",
        "",
        "| | seconds | images per second | fraction of decoding speed |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Target of this process: {TARGET_SHARE}, {'met' if decode_shares[IN_PROCESS] >= TARGET_SHARE else 'missed'}. "
        f"The tables are {digest_summary}.",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, default=RECORDINGS_DIR, help="source of the episodes")
    parser.add_argument("--episodes", type=int, default=NUM_EPISODES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, help="folder of the dataset, for reuse; created if missing")
    parser.add_argument("--page", type=Path, default=Path("docs/results/benchmarks.md"), help="results page")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        source = make_dataset(args.data or Path(folder, "data"), args.recordings, args.episodes)
        model = save_model(Path(folder, "model"), source.views)
        calls: dict[str, Callable[[], object]] = {DECODE_ONLY: partial(decode_all, source, model)}
        calls |= {
            name: partial(score_all, source, model, Path(folder), settings)
            for name, settings in ENGINE_SETTINGS.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        digests: set[str] = set()
        for round_index in range(args.rounds):
            for name, call in calls.items():
                duration, digest = time_call(call)
                seconds[name].append(duration)
                digests |= {str(digest)} if digest else set()
                logging.info("round %d of %d, %s: %.1f s", round_index + 1, args.rounds, name, duration)
        command = f"python benchmarks/score_throughput.py --rounds {args.rounds}"
        command += f" --episodes {args.episodes}" if args.episodes != NUM_EPISODES else ""
        write_section(args.page, "score_throughput", results_section(source, seconds, digests, command))


if __name__ == "__main__":
    main()
