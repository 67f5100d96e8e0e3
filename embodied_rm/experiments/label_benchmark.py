"""`embodied-rm bench labels`: compare the default model trained with every labeling scheme."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.command import Command
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.evaluate import evaluate, ground_truths, model_table
from embodied_rm.experiments.evaluate_model import similarity_predictions
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.results_cache import ResultsCache, open_results_cache
from embodied_rm.experiments.results_page import companion_path, describe_machine, write_section
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.schemes import LABEL_SCHEMES, select_schemes
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.clip_similarity import ClipSimilarity
from embodied_rm.models.potential_fusion import FusionKind
from embodied_rm.open_run import open_run
from embodied_rm.report.markdown import markdown_table
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import collect_episodes
from embodied_rm.training import CHECKPOINT_DIR, HeldOut, HeldOutConfig, TrainConfig, train
from embodied_rm.types import Episode

COLUMN_TITLES = {
    "voc": "VOC+",
    "voc_reversed": "VOC-",
    "voc_f1": "VOC-F1",
    "mae_successes": "MAE, successes",
    "mae_failures": "MAE, failures",
    "success_auc": "AUC",
    "subtask_accuracy": "subtask accuracy",
    "epic": "EPIC",
    "starc": "STARC",
}
"""Metric of `evaluate` -> title of its column; a missing metric is shown as "-"."""
MetricTable = Mapping[str, float]
RECORDED_TASKS = ("lift_cube", "open_drawer")
TRAIN_RECORDING = collect_episodes.CollectConfig(
    tasks=RECORDED_TASKS, num_successes=100, num_failures=200, frame_stride=2, action_noise=0.25, speed_range=(0.5, 1.0)
)
RECORDING_CONFIGS = {
    "data": TRAIN_RECORDING,
    "eval_data": replace(TRAIN_RECORDING, num_successes=20, num_failures=30, seed=1),
}
"""Recordings that are made if no data is set, as in `embodied-rm demo train_reward_model=true`."""


@dataclass(frozen=True, kw_only=True)
class BenchLabelsConfig:
    """Config of `bench labels`."""

    data: Path | None = None
    eval_data: Path | None = None
    label_schemes: tuple[str, ...] = tuple(
        name for name, scheme in LABEL_SCHEMES.items() if scheme.supervision not in ("prediction", "comparison")
    )
    num_seeds: int = 3
    steps: int = 600
    image_size: tuple[int, int] = (64, 64)
    frame_stride: int = 1
    clip_baseline: str | None = None
    results_page: Path | None = None

    def __post_init__(self) -> None:
        select_schemes(self.label_schemes)
        check_minimum(self, 1, "num_seeds", "steps")
        if (self.data is None) != (self.eval_data is None):
            raise UserError("data and eval_data belong together: set both, or neither to record them")


def main(config: BenchLabelsConfig, run: RunFolder, reporter: Reporter) -> None:
    """Train and evaluate every unfinished cell; write metrics and, if set, a section of the results page."""
    # Opened before training, so that a wrong name fails at once.
    similarity = None if config.clip_baseline is None else ClipSimilarity(config.clip_baseline)
    cells = list(product(config.label_schemes, range(config.num_seeds)))
    bench_data = LabelBenchData(config, run, reporter)
    cell_results = measure_cells(cells, bench_data, open_results_cache(config.results_page))
    results = list(reporter.track(cell_results, "cells", total=len(cells)))
    rows = {
        name: [trained_metrics(name, cell) for (scheme_name, _), cell in results if scheme_name == name]
        for name in config.label_schemes
    }
    for name, seeds in rows.items():
        reporter.table(name, {COLUMN_TITLES[metric]: text for metric, text in format_seeds(seeds).items()})
    scheme_results = {
        name: {"fusion": cell_train_config(name, 0, config).fusion, "seeds": seeds} for name, seeds in rows.items()
    }
    first_cell = results[0][1]
    baselines = first_cell["baselines"] | bench_data.similarity_metrics(similarity)
    metrics = {"machine": describe_machine(), "label_schemes": scheme_results, "baselines": baselines}
    if config.results_page is not None:
        num_episodes = [first_cell[key] for key in ("num_train_episodes", "num_eval_episodes")]
        text = markdown_section(config, config.results_page, rows, baselines, *num_episodes)
        write_section(config.results_page, "bench labels", text, "Labeling schemes")
    run.write_json("metrics.json", {"bench": metrics})


@dataclass(frozen=True)
class LabelBenchData:
    """The episodes that all cells share; recorded or read when first needed."""

    config: BenchLabelsConfig
    run: RunFolder
    reporter: Reporter

    @cached_property
    def episodes(self) -> tuple[list[Episode], list[Episode]]:
        """Training and evaluation episodes. Data that a scheme lacks fails here, before the first cell is trained."""
        folders = data_folders(self)
        train_episodes, eval_episodes = (read_episodes(folder, self.config, self.reporter) for folder in folders)
        label(train_episodes, self.config.label_schemes)
        return train_episodes, eval_episodes

    def similarity_metrics(self, similarity: ClipSimilarity | None) -> dict[str, MetricTable]:
        """Return the metrics of frame-text similarity on the evaluation episodes; empty without a model."""
        if similarity is None:
            return {}
        source, stride = open_dataset(resolve_dataset(data_folders(self)[1])), self.config.frame_stride
        predictions = similarity_predictions(similarity, source, range(len(source)), self.reporter, stride)
        return {name: model_table(table, ground_truths(self.episodes[1])) for name, table in predictions.items()}

    @cached_property
    def cache_settings(self) -> dict[str, Any]:
        """Everything that decides the episodes: the recording configs, or digests of their content."""
        if self.config.data is None:
            return {name: asdict(recording) for name, recording in RECORDING_CONFIGS.items()}
        digests = (sorted(map(episode_digest, episodes)) for episodes in self.episodes)
        return dict(zip(RECORDING_CONFIGS, digests, strict=True))


def episode_digest(episode: Episode) -> str:
    """Return the SHA-256 of everything in an episode that labels depend on."""
    fields = {key: value for key, value in vars(episode).items() if key not in ("name", "views", "state")}
    arrays = {key: np.asarray(value).tolist() for key, value in fields.items() if key in ("progress", "action")}
    text = json.dumps({**fields, **arrays}, sort_keys=True, default=str)
    return hashlib.sha256(f"{fingerprint(episode)} {text}".encode()).hexdigest()


def data_folders(bench_data: LabelBenchData) -> tuple[Path, Path]:
    """Return the folders of training and evaluation data; data that is not set is recorded into the run folder."""
    config, run = bench_data.config, bench_data.run
    if config.data is not None and config.eval_data is not None:
        return config.data, config.eval_data
    pipeline = Pipeline(run, bench_data.reporter)
    for name, recording in RECORDING_CONFIGS.items():
        pipeline.run_command(f"collect {name}", name, collect_episodes.COMMAND, recording)
    return run.path / "data", run.path / "eval_data"


def read_episodes(folder: Path, config: BenchLabelsConfig, reporter: Reporter) -> list[Episode]:
    """Read the episodes of a folder at the image size of the model."""
    source = open_dataset(resolve_dataset(folder))
    rows = reporter.track(range(len(source)), f"read {folder}")
    return [source.episode(row, size=config.image_size, stride=config.frame_stride) for row in rows]


def cell_train_config(scheme: str, seed: int, config: BenchLabelsConfig) -> TrainConfig:
    """Return the training config of a cell: that of `embodied-rm train`, with the hops that the scheme teaches."""
    fusion: FusionKind = "mean" if LABEL_SCHEMES[scheme].incremental else "forward"
    size, steps = config.image_size, config.steps
    return TrainConfig(label_schemes=(scheme,), fusion=fusion, image_size=size, steps=steps, seed=seed)


def measure_cells(
    cells: Sequence[tuple[str, int]], bench_data: LabelBenchData, results_cache: ResultsCache
) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    """Yield the metrics of each cell; finished cells are read from the run folder or the results cache."""
    for name, seed in cells:
        train_config, cell = cell_train_config(name, seed, bench_data.config), f"{name}/{seed}"
        cell_settings = {"training": asdict(train_config), "frame_stride": bench_data.config.frame_stride}
        cell_settings |= bench_data.cache_settings
        measure = partial(measure_cell, train_config, cell, bench_data)
        yield (name, seed), dict(results_cache.get_or_measure(cell, cell_settings, bench_data.run.path / cell, measure))


def measure_cell(train_config: TrainConfig, cell: str, bench_data: LabelBenchData) -> dict[str, Any]:
    """Train a cell in its own folder and return its metrics."""
    train_episodes, eval_episodes = bench_data.episodes
    run = open_run("bench labels", train_config, bench_data.run.path / cell, resume=True)
    if not run.finished:
        if (checkpoint := run.path / CHECKPOINT_DIR).exists():
            net = load_progress_net(checkpoint)
        else:
            # They test the schemes, so they choose no weights.
            held_out = HeldOut(episodes=eval_episodes, config=HeldOutConfig(eval_percent=0))
            net = train(train_episodes, train_config, run, bench_data.reporter, held_out)
        metrics = evaluate(net, eval_episodes, bench_data.reporter)
        num_episodes = {"num_train_episodes": len(train_episodes), "num_eval_episodes": len(eval_episodes)}
        run.write_json("metrics.json", {**metrics, **num_episodes})
    return run.read_json("metrics.json")


def trained_metrics(name: str, cell: Mapping[str, Any]) -> MetricTable:
    """Return the metrics of a cell, without timings and without heads that the scheme does not train."""
    excluded = {"seconds_per_frame"}
    if "subtask" not in LABEL_SCHEMES[name].loss_terms:
        excluded.add("subtask_accuracy")
    return {metric: value for metric, value in cell["reward_model"].items() if metric not in excluded}


def format_seeds(seeds: Sequence[MetricTable]) -> dict[str, str]:
    """Return metric -> mean and standard deviation over the seeds, "-" if it is missing."""
    return {metric: _format_mean_std([seed[metric] for seed in seeds if metric in seed]) for metric in COLUMN_TITLES}


def _format_mean_std(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def markdown_section(
    config: BenchLabelsConfig,
    page: Path,
    rows: Mapping[str, Sequence[MetricTable]],
    baselines: Mapping[str, MetricTable],
    *episodes: int,
) -> str:
    """Return the results as Markdown."""
    cells = [
        (f"`{name}`" + "*" * (not scheme.incremental), scheme.supervision, *format_seeds(rows[name]).values())
        for name, scheme in ((name, LABEL_SCHEMES[name]) for name in rows)
    ]
    cells += [(f"_{name}_", "", *format_seeds([table]).values()) for name, table in baselines.items()]
    lines = [
        "## One model, trained by every labeling scheme",
        "",
        f"`embodied-rm bench labels`: the default model, {config.steps} optimizer steps on {episodes[0]} episodes, "
        f"evaluated on {episodes[1]} unseen ones; mean ± standard deviation over {config.num_seeds} seeds. Schemes "
        "marked * do not train the hop from the previous frame and are evaluated from the first frame only. "
        "Supervision: the strongest annotation that a scheme uses; true progress is also the reference of all metrics. "
        "The last rows are baselines without images and, if measured, `similarity`, frame-text similarity. "
        f"All cells as data: `{companion_path(page, '', '.jsonl').name}`.",
        "",
        *markdown_table(("labels", "supervision", *COLUMN_TITLES.values()), cells),
    ]
    return "\n".join(lines)


COMMAND = Command(resumable=True, schema=BenchLabelsConfig, main=main)
