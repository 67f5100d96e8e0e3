"""`embodied-rm train`: train a reward model on recorded episodes."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from embodied_rm.command import Command, to_base_config
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.load_dataset import load_dataset, read_valid_episodes
from embodied_rm.data.provenance import dataset_provenance, merge_provenance
from embodied_rm.data.score_table import ScoreTable
from embodied_rm.data.source import EpisodeSource, ImageSize
from embodied_rm.distributed import init_distributed
from embodied_rm.errors import UserError
from embodied_rm.experiments.load import load_net
from embodied_rm.paths import resolve_reward_model
from embodied_rm.report import write_report
from embodied_rm.report.training_report import training_report
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop.splits import NO_SPLIT, Split, check_split, check_split_membership
from embodied_rm.training import (
    HELD_OUT_FILE,
    Execution,
    HeldOut,
    HeldOutConfig,
    TrainConfig,
    check_streamable,
    train,
)
from embodied_rm.training.fitting import with_image_size_of_encoder
from embodied_rm.training.streaming import StreamingEpisodes
from embodied_rm.training.time_reversal import add_time_reversals
from embodied_rm.types import Episode


@dataclass(frozen=True, kw_only=True)
class TrainCommand(TrainConfig, HeldOutConfig):
    """Config of `train`."""

    data: Path
    held_out: Path | None = None
    instruction: str | None = None  # of recordings and HDF5 files, in place of a stored one
    init_from: Path | None = None  # run folder or checkpoint folder of the initial model
    frame_stride: int = 1
    split: Split = field(default_factory=Split)  # split that the data must belong to; "none": no check
    features: FeatureMap = field(default_factory=FeatureMap)  # names of stored views and columns
    scores: Path | None = None  # run folder of `score`, whose scores are the targets of label_schemes=[distilled]
    device: str = "cpu"  # device of the model in training: cpu or cuda
    fsdp: bool = False  # whether weights, gradients and optimizer state of the towers are sharded over the processes
    frame_cache_gb: float | None = None  # memory for decoded frames, GB per process; None: all frames are kept
    time_reversal: bool = False  # whether reversed episodes are added, see `embodied_rm.training.time_reversal`

    def __post_init__(self) -> None:
        super().__post_init__()
        HeldOutConfig.__post_init__(self)
        self.check_episodes(self.held_out is not None)
        if (self.scores is None) == ("distilled" in self.label_schemes):
            raise UserError(
                "label_schemes=[distilled] teaches the scores in scores=<run folder of embodied-rm score>, got "
                f"label_schemes=[{', '.join(self.label_schemes)}] and scores={self.scores}"
            )
        if self.scores is not None and self.time_reversal:
            raise UserError("time_reversal=true adds reversed videos, which have no scores: leave it out with scores=")


def main(config: TrainCommand, run: RunFolder, reporter: Reporter) -> None:
    """Train; write checkpoint and metrics. Raises `DataError` if the data does not belong to the split."""
    start_s = time.monotonic()
    if config.frame_cache_gb is not None:
        check_streamable(config)
        if config.time_reversal:
            raise UserError(
                "frame_cache_gb keeps a part of the videos in memory, and time_reversal=true needs them all"
            )
    check_split(config.split)
    data = load_dataset(config.data, reporter, config.instruction, config.features)
    if config.split.name != NO_SPLIT:
        check_split_membership(config.split, data.meta)
    if config.preference_model is not None:
        config = replace(config, preference_model=resolve_reward_model(config.preference_model))
    initial_net, facts = (None, None) if config.init_from is None else load_net(config.init_from)
    if initial_net is None:
        config = with_image_size_of_encoder(config)
    else:
        config = replace(config, image_size=initial_net.config.encoder.image_size)
    read_episode = partial(data.episode, size=config.image_size, stride=config.frame_stride)
    stream = None if config.frame_cache_gb is None else StreamingEpisodes(read_episode, config.frame_cache_gb)
    episodes: list[Episode] = list(
        read_dataset(data, f"{config.data}", stream.index_episode if stream else read_episode, reporter)
    )
    if config.scores is not None:
        episodes = list(with_scores(data, config.scores, episodes, config.frame_stride))
    episodes = add_time_reversals(episodes) if config.time_reversal else episodes
    held_out = None
    if config.held_out is not None:
        reading: dict[str, Any] = {"frame_stride": config.frame_stride, "instruction": config.instruction}
        held_out = read_held_out(config.held_out, config, config.features, reporter, size=config.image_size, **reading)
    with init_distributed(config.device) as dist:
        net = train(
            episodes,
            to_base_config(config, TrainConfig),
            run,
            reporter,
            held_out,
            initial_net,
            merge_provenance(facts or {}, dataset_provenance(config.data)),
            Execution(group=dist, device=config.device, stream=stream, fsdp=config.fsdp),
        )
    if dist.rank:
        return
    metrics: dict[str, Any] = {
        "episodes": len(episodes),
        "frames": sum(map(len, episodes)),
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "seconds": time.monotonic() - start_s,
    }
    run.write_json("metrics.json", {"train": metrics | report_curve(run, config.data, config.held_out)})


def report_curve(run: RunFolder, data: Path, held_out: Path | None) -> dict[str, Any]:
    """Write the report on the held-out curve of a run, and return its entry for metrics.json; {} without a curve."""
    if not (run.path / HELD_OUT_FILE).exists():
        return {}
    curve = run.read_json(HELD_OUT_FILE)
    write_report(run.file_path("report.html"), training_report(curve, f"{data}", f"{held_out}"))
    return {"held_out": curve}


def read_held_out(
    path: Path,
    config: HeldOutConfig,
    features: FeatureMap,
    reporter: Reporter,
    *,
    size: ImageSize,
    frame_stride: int = 1,
    instruction: str | None = None,
) -> HeldOut:
    """Open held-out episodes, which are read when they are used.

    Args:
        path: The dataset.
        config: An instance of it, or of a subclass.
        features: Views and columns of the dataset.
        reporter: Shows what is read.
        size: Height and width of the images.
        frame_stride: Every n-th frame is read.
        instruction: See `open_dataset`.
    """
    data = load_dataset(path, reporter, instruction, features)
    read_episode = partial(data.episode, size=size, stride=frame_stride)
    episodes = read_dataset(data, f"{path}", read_episode, reporter)
    return HeldOut(episodes=episodes, config=to_base_config(config, HeldOutConfig))


def read_dataset(
    data: EpisodeSource, label: str, read_episode: Callable[[int], Episode], reporter: Reporter
) -> Iterator[Episode]:
    """Yield the episodes of a dataset; `label` names it in the progress report."""
    yield from read_valid_episodes(data, range(len(data)), read_episode, reporter, f"read {label}")


def with_scores(
    data: EpisodeSource, score_run: Path, episodes: Iterable[Episode], frame_stride: int
) -> Iterator[Episode]:
    """Yield the episodes with the predictions of a run of `score`; unscored frames are marked invalid."""
    scores, rows = ScoreTable.read(score_run), {meta.name: row for row, meta in enumerate(data.meta)}
    for episode in episodes:
        row = rows[episode.name]
        episode_number = data.meta[row].episode_index
        yield scores.attach_predictions(
            episode, row if episode_number is None else episode_number, data.meta[row].length, frame_stride
        )


COMMAND = Command(resumable=True, schema=TrainCommand, main=main, distributed=True)
