"""`embodied-rm ship`: the model in the box, from nothing to its card."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embodied_rm.atomic_file import write_atomic
from embodied_rm.cli.benchmarks import machine
from embodied_rm.cli.command import Command
from embodied_rm.cli.commands import audit, calibrate, collect, evaluate, train
from embodied_rm.cli.places import REWARD_MODEL
from embodied_rm.cli.splits import ALL, Split, shipped
from embodied_rm.cli.stages import Stages
from embodied_rm.cli.worlds import WorldConfig
from embodied_rm.errors import UserError
from embodied_rm.models.augment import AugmentConfig
from embodied_rm.report.card import model_card
from embodied_rm.run import Reporter, RunFolder
from sim.vec_env import VIEWS

SEEN = "seen"
"""The split that the model is trained on."""
CALIBRATION_SEED = 500
"""Of the episodes that the interval is fitted on: neither that of the training nor that of the judging ones."""
CARD, NUMBERS = "README.md", "card.json"
"""The card, and the numbers that it is made from."""


@dataclass(frozen=True, kw_only=True)
class ShipConfig:
    """How much is recorded, how long is learned, by how many episodes it is judged."""

    successes: int = 180
    failures: int = 300
    afterwards: int = 60
    updates: int = 18000
    batch: int = 24
    augment: AugmentConfig = field(
        default_factory=lambda: AugmentConfig(
            shift=0.1, zoom=0.05, rotation=0.06, colour=0.3, drop_view=0.25, impostor=0.1, words=0.15
        )
    )
    test_successes: int = 10
    test_failures: int = 10
    seed: int = 0
    similarity: str | None = None
    into: Path | None = None

    def __post_init__(self) -> None:
        for name in ("successes", "failures", "updates", "batch", "test_successes", "test_failures"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.seed in (CALIBRATION_SEED, evaluate.RecordConfig.seed):
            raise UserError(
                f"seed={self.seed} is that of episodes that the model is calibrated or judged by: another one"
            )


def start(config: ShipConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record, train, calibrate, judge on what was seen and what was not, audit; leave the model with its card."""
    stages = Stages(run, reporter)
    world = WorldConfig(views=VIEWS)
    data = stages.command("collect", "data", collect.COMMAND, collect.CollectConfig(
        split=shipped(SEEN), successes=config.successes, failures=config.failures,
        afterwards=config.afterwards, every=2, seed=config.seed, world=world,
    ))  # fmt: skip
    trained = stages.command("train", "reward_model", train.COMMAND, train.TrainCommand(
        data=run.path / "data", split=shipped(SEEN), reversals=True, updates=config.updates,
        batch=config.batch, seed=config.seed,
        augment=config.augment, fusion="precise",
    ))  # fmt: skip
    stages.command("collect for calibration", "calibration", collect.COMMAND, collect.CollectConfig(
        split=shipped(SEEN), successes=config.test_successes, failures=config.test_failures, every=2,
        seed=CALIBRATION_SEED, world=world,
    ))  # fmt: skip
    fitted = stages.command("calibrate", "calibrated", calibrate.COMMAND, calibrate.CalibrateConfig(
        data=run.path / "calibration", checkpoint=run.path / "reward_model"
    ))  # fmt: skip
    record = evaluate.RecordConfig(successes=config.test_successes, failures=config.test_failures, world=world)
    model = run.path / "calibrated"
    judged = {
        name: stages.command(f"evaluate {name}", name, evaluate.COMMAND, evaluate.EvaluateConfig(
            checkpoint=model, split=split, record=record, similarity=config.similarity
        ))["splits"]
        for name, split in ((SEEN, shipped(SEEN)), ("unseen", Split(name=ALL)))
    }  # fmt: skip
    test = audit.AuditConfig(data=run.path / SEEN / SEEN, checkpoint=model)
    cases = stages.command("audit", "audit", audit.COMMAND, test)
    metrics: dict[str, Any] = {
        **data,
        **trained,
        **fitted,
        "splits": {**judged[SEEN], **judged["unseen"]},
        **cases,
        "seconds": {**stages.seconds, "total": stages.total},
        "machine": machine(),
    }
    RunFolder(model / REWARD_MODEL).write_json(NUMBERS, metrics)
    write_atomic(model / REWARD_MODEL / CARD, model_card(metrics))
    if config.into is not None:
        install(model / REWARD_MODEL, config.into)
        reporter.note(f"the model and its card are in {config.into}")
    run.write_json("metrics.json", metrics)


def install(model: Path, into: Path) -> None:
    """Copy the model to a folder, and then remove the weights of the one before: they are filed by their content."""
    former = set(into.glob("tensors-*.safetensors"))
    shutil.copytree(model, into, dirs_exist_ok=True)
    for weights in former - {into / path.name for path in model.iterdir()}:
        weights.unlink()


COMMAND = Command(schema=ShipConfig, start=start)
