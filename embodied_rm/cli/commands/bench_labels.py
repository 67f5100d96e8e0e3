"""`embodied-rm bench labels`: the default model trained by every labelling scheme, side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.cli.benchmarks import beside, machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.commands import collect
from embodied_rm.cli.commands.evaluate import similar
from embodied_rm.cli.ledger import Ledger, ledger_of
from embodied_rm.cli.places import dataset_in
from embodied_rm.cli.runs import open_run
from embodied_rm.cli.stages import Stages
from embodied_rm.data.catalog import open_data
from embodied_rm.errors import UserError
from embodied_rm.evaluate import evaluate, model_table, truths
from embodied_rm.labels.identity import fingerprint
from embodied_rm.labels.labelled import label
from embodied_rm.labels.schemes import SCHEMES, chosen
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.similarity import Similarity
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.train import CHECKPOINT, TrainConfig, train
from embodied_rm.types import Episode

COLUMNS = {
    "voc": "VOC+",
    "voc_reversed": "VOC-",
    "voc_f1": "VOC-F1",
    "mae_successes": "MAE, successes",
    "mae_failures": "MAE, failures",
    "success_auc": "AUC",
    "step_accuracy": "step accuracy",
    "epic": "EPIC",
    "starc": "STARC",
}
"""Metric of `evaluate` -> its column; one that it does not give is shown as "-"."""
Table = Mapping[str, float]
TASKS = ("lift_cube", "open_drawer")
RECORDED = {
    "data": collect.CollectConfig(tasks=TASKS, successes=100, failures=200, every=2, noise=0.25, pace=(0.5, 1.0)),
    "unseen": collect.CollectConfig(
        tasks=TASKS, successes=20, failures=30, every=2, noise=0.25, pace=(0.5, 1.0), seed=1
    ),
}
"""What is recorded where no data are named: as `embodied-rm demo own_model=true` records."""


@dataclass(frozen=True, kw_only=True)
class BenchLabelsConfig:
    """Which schemes are compared, on what, and for how long each is trained."""

    data: Path | None = None
    unseen: Path | None = None
    labels: tuple[str, ...] = tuple(name for name, scheme in SCHEMES.items() if scheme.told != "judgement")
    seeds: int = 3
    updates: int = 600
    image_size: tuple[int, int] = (64, 64)
    stride: int = 1
    similarity: str | None = None
    page: Path | None = None

    def __post_init__(self) -> None:
        chosen(self.labels)
        for name in ("seeds", "updates"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if (self.data is None) != (self.unseen is None):
            raise UserError("data and unseen belong together: name both, or neither and they are recorded")


def start(config: BenchLabelsConfig, run: RunFolder, reporter: Reporter) -> None:
    """Train and evaluate every cell that is not finished; leave the numbers and perhaps a section of a page."""
    similarity = None if config.similarity is None else Similarity(config.similarity)  # a misspelt one is told at once
    cells, material = list(product(config.labels, range(config.seeds))), Material(config, run, reporter)
    work = trained(cells, material, ledger_of(config.page))
    done = list(reporter.track(work, "cells", total=len(cells)))
    rows = {name: [taught(name, cell) for (own, _), cell in done if own == name] for name in config.labels}
    for name, seeds in rows.items():
        reporter.table(name, {COLUMNS[metric]: text for metric, text in cells_of(seeds).items()})
    told = {name: {"fusion": settings(name, 0, config).fusion, "seeds": seeds} for name, seeds in rows.items()}
    first = done[0][1]
    baselines = first["baselines"] | ({} if similarity is None else {"similarity": material.seen_by(similarity)})
    run.write_json("metrics.json", {"bench": {"machine": machine(), "labels": told, "baselines": baselines}})
    if config.page is not None:
        text = section(config, config.page, rows, baselines, first["trained_on"], first["judged_on"])
        put_section(config.page, "bench labels", text, "Labelling schemes")


@dataclass(frozen=True)
class Material:
    """What all cells share: the episodes, recorded or read when the first one needs them."""

    config: BenchLabelsConfig
    run: RunFolder
    reporter: Reporter

    @cached_property
    def episodes(self) -> tuple[list[Episode], list[Episode]]:
        """Those to train on and those to judge on. What they lack for a scheme is said here, before hours are spent
        on the others."""
        known, unseen = (read(folder, self.config, self.reporter) for folder in folders(self))
        label(known, self.config.labels)
        return known, unseen

    def seen_by(self, similarity: Similarity) -> Table:
        """The metrics of frame-text similarity on those to judge on."""
        source = open_data(dataset_in(folders(self)[1]))
        judged = similar(similarity, source, range(len(source)), self.reporter, self.config.stride)
        return model_table(judged, truths(self.episodes[1]))

    @cached_property
    def told(self) -> dict[str, Any]:
        """All that decides them: how they are recorded, or what they show and say."""
        if self.config.data is None:
            return {name: asdict(recording) for name, recording in RECORDED.items()}
        return dict(zip(RECORDED, (sorted(map(content, each)) for each in self.episodes), strict=True))


def content(episode: Episode) -> str:
    """SHA-256 of everything that labels are made of."""
    said = {key: value for key, value in vars(episode).items() if key not in ("name", "views", "state")}
    numbers = {key: np.asarray(value).tolist() for key, value in said.items() if key in ("progress", "action")}
    text = json.dumps({**said, **numbers}, sort_keys=True, default=str)
    return hashlib.sha256(f"{fingerprint(episode)} {text}".encode()).hexdigest()


def folders(material: Material) -> tuple[Path, Path]:
    """What to train on and what to judge on: what is named, or else is recorded into the run folder."""
    config, run = material.config, material.run
    if config.data is not None and config.unseen is not None:
        return config.data, config.unseen
    stages = Stages(run, material.reporter)
    for name, recording in RECORDED.items():
        stages.command(f"collect {name}", name, collect.COMMAND, recording)
    return run.path / "data", run.path / "unseen"


def read(folder: Path, config: BenchLabelsConfig, reporter: Reporter) -> list[Episode]:
    """The episodes of a folder at the size that the model sees."""
    source = open_data(dataset_in(folder))
    rows = reporter.track(range(len(source)), f"read {folder}")
    return [source.episode(row, size=config.image_size, stride=config.stride) for row in rows]


def settings(name: str, seed: int, config: BenchLabelsConfig) -> TrainConfig:
    """How a cell is trained: as `embodied-rm train` does it, with the perspectives that the scheme teaches."""
    return TrainConfig(
        labels=(name,),
        fusion="mean" if SCHEMES[name].incremental else "forward",
        image_size=config.image_size,
        updates=config.updates,
        seed=seed,
    )


def trained(
    cells: Sequence[tuple[str, int]], material: Material, ledger: Ledger
) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    """Cell by cell what `evaluate` says of it; one that is finished, here or in the ledger, is only read."""
    for name, seed in cells:
        training, cell = settings(name, seed, material.config), f"{name}/{seed}"
        decided = {"training": asdict(training), "stride": material.config.stride, **material.told}
        measure = partial(measured, training, cell, material)
        yield (name, seed), dict(ledger.cell(cell, decided, material.run.path / cell, measure))


def measured(training: TrainConfig, cell: str, material: Material) -> dict[str, Any]:
    """What `evaluate` says of a cell, trained in its own folder."""
    known, unseen = material.episodes
    run = open_run("bench labels", training, material.run.path / cell, resume=True)
    if not run.finished:
        saved = run.path / CHECKPOINT
        net = load_progress_net(saved) if saved.exists() else train(known, training, run, material.reporter, unseen)
        said = evaluate(net, unseen, material.reporter)
        run.write_json("metrics.json", {**said, "trained_on": len(known), "judged_on": len(unseen)})
    return run.read_json("metrics.json")


def taught(name: str, cell: Mapping[str, Any]) -> Table:
    """A cell's metrics, without those of a head that the scheme does not train, and of time, which is no label's."""
    apart = ("seconds_per_frame",) if "step" in SCHEMES[name].teaches else ("seconds_per_frame", "step_accuracy")
    return {metric: value for metric, value in cell["reward_model"].items() if metric not in apart}


def cells_of(seeds: Sequence[Table]) -> dict[str, str]:
    """Metric -> mean and standard deviation over the seeds; "-" where `evaluate` did not give it."""
    return {metric: _told([seed[metric] for seed in seeds if metric in seed]) for metric in COLUMNS}


def _told(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def section(
    config: BenchLabelsConfig,
    page: Path,
    rows: Mapping[str, Sequence[Table]],
    baselines: Mapping[str, Table],
    *episodes: int,
) -> str:
    """The results as Markdown."""
    lines = [
        "## One model, trained by every labelling scheme",
        "",
        f"`embodied-rm bench labels`: the default model, {config.updates} updates on {episodes[0]} episodes, judged on "
        f"{episodes[1]} that it has not seen; mean ± standard deviation over {config.seeds} seeds. Schemes marked * "
        "teach no hops from the previous frame and are judged from the first frame alone. Told: the most that a scheme "
        "learns of an episode; who is told the true progress learns the very curve that all are measured by, the "
        "others make up one of their own. The last rows are curves "
        "that look at no picture, and `similarity`, where it was measured, frame-text similarity. "
        f"Every cell as data: `{beside(page, '', '.jsonl').name}`.",
        "",
        f"| labels | told | {' | '.join(COLUMNS.values())} |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    lines += [
        _row(f"`{name}`" + "*" * (not SCHEMES[name].incremental), SCHEMES[name].told, seeds)
        for name, seeds in rows.items()
    ]
    lines += [_row(f"_{name}_", "", [table]) for name, table in baselines.items()]
    return "\n".join(lines)


def _row(name: str, told: str, seeds: Sequence[Table]) -> str:
    return f"| {name} | {told} | {' | '.join(cells_of(seeds).values())} |"


COMMAND = Command(schema=BenchLabelsConfig, start=start)
