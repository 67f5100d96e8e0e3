"""How fast a whole dataset is scored, and by whom, to the same bytes: python benchmarks/score_dataset.py

Makes a LeRobot dataset of 100 episodes, 60 to 120 frames of three views each, cut from the recordings in
`--recordings` (640x480). Then, in turn and `--rounds` times: decodes all of it, judging nothing; scores it as
`embodied-rm score` does, without plots and videos, with a model of the architecture in the box that knows these views:
in this process, in two processes, on a Ray with one actor and with two. Writes its section of docs/benchmarks.md.
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

from embodied_rm.cli.benchmarks import put_section
from embodied_rm.cli.places import IN_THE_BOX
from embodied_rm.data.catalog import open_data
from embodied_rm.data.film import films
from embodied_rm.data.lerobot.read import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.models.checkpoint import judging_digest, load_progress_net, save_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run import RunFolder, Silent
from embodied_rm.score import TABLE, ScoreConfig, Scorer, score_corpus, views_for
from embodied_rm.types import Episode

RECORDINGS = Path("../shared/data/real_bimanual")
EPISODES = 100
SHORTEST, LONGEST = 60, 120
"""Frames of an episode."""
ASKED = 0.8
"""Share of the speed of decoding alone."""
DECODED, HERE = "decoding alone", "this process"
ENGINES: dict[str, dict[str, object]] = {
    HERE: {},
    "two processes": {"workers": 2},
    "Ray, one actor": {"engine": "ray"},
    "Ray, two actors": {"engine": "ray", "workers": 2},
}


def make(folder: Path, recordings: Path, episodes: int) -> LeRobotDataset:
    """Episodes cut from recordings, as they are stored; the dataset that is in the folder already, if there is one."""
    if folder.exists():
        return LeRobotDataset(folder)
    source, rng = open_data(recordings), np.random.default_rng(0)
    with DatasetWriter(folder) as writer:
        for number in range(episodes):
            row, length = int(rng.integers(len(source))), int(rng.integers(SHORTEST, LONGEST + 1))
            meta = source.meta[row]
            start = int(rng.integers(meta.length - length))
            size = source.picture_size(row)
            frames = source.moments(row, start, start + length, views=source.views, size=size).frames
            views = {name: np.ascontiguousarray(frames[:, v]) for v, name in enumerate(source.views)}
            name, fps = f"episode_{number:06d}", source.frame_rate(row)
            writer.add(Episode(name=name, views=views, instruction=meta.instruction, fps=fps))
            logging.info("episode %d of %d is written", number + 1, episodes)
    return LeRobotDataset(folder)


def save_model(folder: Path, views: Sequence[str]) -> Path:
    """A model with random weights of the architecture in the box, as a checkpoint. Weights change no time."""
    torch.manual_seed(0)
    config = replace(load_progress_net(IN_THE_BOX).config, views=tuple(views))
    save_progress_net(folder, ProgressNet(config).eval(), {})
    return folder


def open_model(folder: Path) -> Scorer:
    """What every worker opens."""
    return Scorer(model=load_progress_net(folder))


def decode(source: LeRobotDataset, model: Path) -> None:
    """What scoring reads, by the same reader to the same pictures."""
    sight = open_model(model).model.sight
    deque(films(source, range(len(source)), views_for(sight, source), sight.image_size), maxlen=0)


def scored(source: LeRobotDataset, model: Path, out: Path, settings: Mapping[str, object]) -> str:
    """Score all of it anew; SHA-256 of the table."""
    run = RunFolder.open(Path(tempfile.mkdtemp(dir=out)))
    config = ScoreConfig(plots=False, videos=False, **settings)  # type: ignore[arg-type]
    score_corpus(partial(open_model, model), source, config, run, Silent(), {"model": judging_digest(model)})
    return hashlib.sha256((run.path / TABLE).read_bytes()).hexdigest()


def timed(call: Callable[[], object]) -> tuple[float, object]:
    """Seconds, and what came of it."""
    began = time.perf_counter()
    told = call()
    return time.perf_counter() - began, told


def section(source: LeRobotDataset, seconds: Mapping[str, list[float]], digests: set[str], line: str) -> str:
    """The results as Markdown."""
    frames = sum(meta.length for meta in source.meta) * len(source.views)
    height, width = source.picture_size(0)
    shares = {
        name: median(alone / mine for alone, mine in zip(seconds[DECODED], taken, strict=True))
        for name, taken in seconds.items()
    }
    rows = [
        f"| {name} | {median(taken):.1f} | {frames / median(taken):,.0f} | {shares[name]:.2f} |"
        for name, taken in seconds.items()
    ]
    same = "the same bytes from all" if len(digests) == 1 else f"{len(digests)} different ones"
    return "\n".join([
        "## Scoring a dataset",
        "",
        f"`{line}`: {len(source)} episodes, {frames:,} pictures of {len(source.views)} views, {width}x{height}, "
        "LeRobot v3.0; the architecture in the box; without plots and videos. "
        f"Medians of {len(seconds[DECODED])} rounds, in turn; the share is the median of those within a round. "
        "Starting processes, actors and Ray counts.",
        "",
        "| | seconds | view-frames a second | share of decoding alone |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Asked of this process: {ASKED}, {'met' if shares[HERE] >= ASKED else 'missed'}. The tables: {same}.",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, help="of which the episodes are cut")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, help="where the dataset is kept for another time; made there if missing")
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks.md"), help="gets a section")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        source = make(args.data or Path(folder, "data"), args.recordings, args.episodes)
        model = save_model(Path(folder, "model"), source.views)
        calls: dict[str, Callable[[], object]] = {DECODED: partial(decode, source, model)}
        calls |= {name: partial(scored, source, model, Path(folder), how) for name, how in ENGINES.items()}
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        digests: set[str] = set()
        for turn in range(args.rounds):
            for name, call in calls.items():
                taken, told = timed(call)
                seconds[name].append(taken)
                digests |= {str(told)} if told else set()
                logging.info("round %d of %d, %s: %.1f s", turn + 1, args.rounds, name, taken)
        line = f"python benchmarks/score_dataset.py --rounds {args.rounds}"
        line += f" --episodes {args.episodes}" if args.episodes != EPISODES else ""
        put_section(args.page, "score_dataset", section(source, seconds, digests, line))


if __name__ == "__main__":
    main()
