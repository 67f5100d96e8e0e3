"""`embodied-rm train real`: the zero-shot model of real robots, from recordings of several labs to its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.atomic_file import write_atomic
from embodied_rm.audit import AuditRewardConfig, audit
from embodied_rm.checkpoint_io import CARD_FILE, read_manifest
from embodied_rm.command import Command
from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.lab_split import LAB_COLUMN, LabSplit
from embodied_rm.data.load_dataset import load_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError, UserError, check_minimum
from embodied_rm.experiments.real_evaluation.zero_shot_scores import measure_zero_shot, read_at_scoring_rate
from embodied_rm.experiments.release_checkpoint import install_checkpoint
from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder, open_frozen_encoder
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE0
from embodied_rm.models.zero_shot.sentence_encoder import open_sentence_encoder
from embodied_rm.models.zero_shot.zero_shot_checkpoint import load_zero_shot_model, save_zero_shot_model
from embodied_rm.models.zero_shot.zero_shot_model import ZeroShotModel
from embodied_rm.report import LineChart, Report, write_report
from embodied_rm.report.real_model_card import real_model_card
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.training import CHECKPOINT_DIR
from embodied_rm.training.zero_shot.episode_features import EpisodeFeatures, encode_episodes
from embodied_rm.training.zero_shot.train_zero_shot import FitCurves, ZeroShotTrainConfig, train_zero_shot

MAX_AUDIT_EPISODES = 32  # per part, evenly spaced


@dataclass(frozen=True, kw_only=True)
class TrainRealConfig:
    """Config of `train real`."""

    data: Path = Path("../shared/data/droid")
    labs: LabSplit = field(default_factory=LabSplit)
    checkpoint: Path | None = None
    encoder: str = EFFICIENTNET_LITE0.name
    num_copies: int = 5
    features_dir: Path | None = None
    final: bool = False
    install_dir: Path | None = None
    nets: ZeroShotTrainConfig = field(default_factory=ZeroShotTrainConfig)

    def __post_init__(self) -> None:
        check_minimum(self, 1, "num_copies")


def main(config: TrainRealConfig, run: RunFolder, reporter: Reporter) -> None:
    """Train a model, or load one; measure it; write it and its card."""
    source = load_dataset(config.data, reporter)
    rows = {part: config.labs.rows(source, part) for part in ("train", "validation", "test")}
    reporter.table("train real", {f"{part} episodes": len(part_rows) for part, part_rows in rows.items()})
    if config.checkpoint is None:
        check_sentences(source, rows["validation"])
        model, facts = train_model(config, run, source, rows, reporter)
        save_zero_shot_model(run.path / CHECKPOINT_DIR, model, facts)  # measuring it may be interrupted
    else:
        model, facts = load_model(config.checkpoint, config.labs)
    parts = ("validation", "test") if config.final else ("validation",)
    scores = {part: measure_zero_shot(model, source, rows[part], f"score the {part} labs", reporter) for part in parts}
    audits = {part: audit_episodes(model, source, rows[part], f"audit on the {part} labs", reporter) for part in parts}
    metrics = {
        "episodes": {part: len(part_rows) for part, part_rows in rows.items()},
        "labs": facts["labs"],
        "encoder": model.encoder.name,
        "parameters": sum(parameter.numel() for parameter in model.net.parameters()),
        "machine": describe_machine(),
        "held_out_loss": facts.get("held_out_loss", {}),
        "scores": scores,
        "audit": audits,
    }
    save_zero_shot_model(run.path / CHECKPOINT_DIR, model, facts | {"scores": scores, "audit": audits})
    write_atomic(run.path / CHECKPOINT_DIR / CARD_FILE, real_model_card(metrics).encode())
    if config.install_dir is not None:
        install_checkpoint(run.path / CHECKPOINT_DIR, config.install_dir)
        reporter.log(f"the model and its card are in {config.install_dir}")
    run.write_json("metrics.json", metrics)


def train_model(
    config: TrainRealConfig,
    run: RunFolder,
    source: EpisodeSource,
    rows: Mapping[str, list[int]],
    reporter: Reporter,
) -> tuple[ZeroShotModel, dict[str, Any]]:
    """Encode the episodes, train the nets and calibrate them. Returns the model and the facts about its data."""
    encoder, text = open_frozen_encoder(config.encoder), open_sentence_encoder()
    train, validation = (
        read_features(config, run, source, rows[part], encoder, reporter) for part in ("train", "validation")
    )
    net, curves = train_zero_shot(train, validation, text, config.nets, encoder.level_channels[0], reporter)
    write_report(run.file_path("report.html"), training_report(curves))
    facts = {
        "labs": {part: list(names) for part, names in vars(config.labs).items()},
        "data_sha256": hash_episodes(source, rows["train"]),
        "held_out_loss": {name: [curve[0][2], curve[-1][2]] for name, curve in curves.items()},
    }
    return ZeroShotModel(net, encoder, text), facts


def training_report(curves: FitCurves) -> Report:
    """Return the page of a training: the losses of each net."""
    charts = [
        LineChart(
            title=f"{name}: losses",
            x_label=f"measurement (the last one: after {curve[-1][0]} updates)",
            series={"training batch": [loss for _, loss, _ in curve], "validation labs": [loss for *_, loss in curve]},
        )
        for name, curve in curves.items()
    ]
    return Report(
        title="Reward model of real robots",
        subtitle="The learning rate ends at 0. The weights are those of the last update.",
        charts=tuple(charts),
    )


def load_model(checkpoint: Path, labs: LabSplit) -> tuple[ZeroShotModel, dict[str, Any]]:
    """Load a trained model and the facts about its data; raise `UserError` if it knows the labs it is measured on."""
    model, stored = load_zero_shot_model(checkpoint), read_manifest(checkpoint)["facts"]
    facts = {key: stored[key] for key in ("labs", "data_sha256", "held_out_loss") if key in stored}
    split = {part: list(names) for part, names in vars(labs).items()}
    if facts["labs"] != split:
        raise UserError(f"checkpoint={checkpoint} was trained with labs={facts['labs']}, not with {split}")
    return model, facts


def check_sentences(source: EpisodeSource, rows: Sequence[int]) -> None:
    """Raise `DataError` unless some lab of the validation episodes has two instructions, which calibration needs."""
    labs = [source.meta[row].metadata.get(LAB_COLUMN) for row in rows]
    if len({(lab, source.meta[row].instruction) for lab, row in zip(labs, rows, strict=True)}) == len(set(labs)):
        raise DataError("labs.validation: no lab has two different instructions, from which relevance is calibrated")


def read_features(
    config: TrainRealConfig,
    run: RunFolder,
    source: EpisodeSource,
    rows: list[int],
    encoder: FrozenEncoder,
    reporter: Reporter,
) -> list[EpisodeFeatures]:
    """Encode episodes, or read their features of an earlier run."""
    folder = config.features_dir or run.path / "features"
    stream = encode_episodes(source, rows, encoder, config.num_copies, folder)
    return list(reporter.track(stream, "encode", total=len(rows)))


def audit_episodes(
    model: ZeroShotModel, source: EpisodeSource, rows: Sequence[int], description: str, reporter: Reporter
) -> dict[str, dict[str, object]]:
    """Audit a model on episodes without annotation; return the entries of the cases that such episodes allow."""
    chosen = [rows[i] for i in np.linspace(0, len(rows) - 1, min(len(rows), MAX_AUDIT_EPISODES)).astype(int)]
    episodes = [read_at_scoring_rate(source, row, model.input_spec.image_size) for row in chosen]
    reporter.table(description, {"episodes": len(episodes)})
    outcomes = audit(model.with_cache(), episodes, AuditRewardConfig(), reporter)
    return {outcome.case.name: outcome.as_dict() for outcome in outcomes if outcome.value is not None}


COMMAND = Command(resumable=True, schema=TrainRealConfig, main=main)
