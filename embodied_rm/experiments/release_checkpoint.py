"""`embodied-rm build-checkpoint`: the bundled model, from nothing to its card."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embodied_rm.atomic_file import write_atomic
from embodied_rm.checkpoint_io import CARD_FILE, read_manifest
from embodied_rm.cli.commands import audit, calibrate, train
from embodied_rm.command import Command
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.experiments import evaluate_model
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.paths import CHECKPOINT_DIR, resolve_reward_model
from embodied_rm.report.model_card import model_card
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import collect_episodes
from embodied_rm.tabletop.envs import EnvConfig
from embodied_rm.tabletop.splits import ALL_UNSEEN, Split, load_split
from embodied_rm.training.augment import AugmentConfig
from embodied_sim.vec_env import VIEW_NAMES

TRAIN_SPLIT = "seen"  # split that the model is trained on
CALIBRATION_SEED = 500  # seed of the calibration episodes; it differs from those of training and evaluation
METRICS_FILE = "card.json"  # the metrics that the model card is made from


RELEASE_AUGMENT = AugmentConfig(
    shift=0.1, zoom=0.05, rotation=0.06, color_jitter=0.3, color_warp_std=0.03,
    view_dropout_prob=0.25, goal_image_spoof_prob=0.1, half_cover_prob=0.1, word_replacement_prob=0.15,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BuildCheckpointConfig:
    """Config of `build-checkpoint`."""

    num_successes: int = 180
    num_failures: int = 300
    num_post_success: int = 60
    steps: int = 18000
    batch_size: int = 24
    augment: AugmentConfig = RELEASE_AUGMENT
    num_test_successes: int = 10
    num_test_failures: int = 10
    seed: int = 0
    init_from: Path | None = None  # run folder or checkpoint folder that training continues from; None: random weights
    clip_baseline: str | None = None
    install_dir: Path | None = None

    def __post_init__(self) -> None:
        check_minimum(self, 1, "num_successes", "num_failures", "steps", "batch_size")
        check_minimum(self, 1, "num_test_successes", "num_test_failures")
        if self.seed in (CALIBRATION_SEED, evaluate_model.RecordConfig.seed):
            raise UserError(f"seed={self.seed} is that of the calibration or evaluation episodes: use another one")


def main(config: BuildCheckpointConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record, train, calibrate, evaluate on seen and unseen splits, and audit; write the model and its card."""
    pipeline = Pipeline(run, reporter)
    init_sha256 = None
    if config.init_from is not None:
        init_sha256 = read_manifest(resolve_reward_model(config.init_from))["manifest_sha256"]
    env_config, seen = EnvConfig(views=VIEW_NAMES), load_split(TRAIN_SPLIT)
    collect_config = collect_episodes.CollectConfig(
        split=seen, num_successes=config.num_successes, num_failures=config.num_failures,
        num_post_success=config.num_post_success, frame_stride=2, seed=config.seed, env=env_config,
    )  # fmt: skip
    collect_metrics = pipeline.run_command("collect", "data", collect_episodes.COMMAND, collect_config)
    train_metrics = pipeline.run_command("train", "reward_model", train.COMMAND, train.TrainCommand(
        data=run.path / "data", split=seen, time_reversal=True, steps=config.steps, batch_size=config.batch_size,
        seed=config.seed, augment=config.augment, fusion="inverse_variance", init_from=config.init_from,
    ))  # fmt: skip
    num_test: dict[str, Any] = {"num_successes": config.num_test_successes, "num_failures": config.num_test_failures}
    calibration_config = replace(collect_config, **num_test, num_post_success=0, seed=CALIBRATION_SEED)
    pipeline.run_command("collect for calibration", "calibration", collect_episodes.COMMAND, calibration_config)
    calibrate_metrics = pipeline.run_command("calibrate", "calibrated", calibrate.COMMAND, calibrate.CalibrateConfig(
        data=run.path / "calibration", checkpoint=run.path / "reward_model"
    ))  # fmt: skip
    record_config = evaluate_model.RecordConfig(**num_test, env=env_config)
    model_folder = run.path / "calibrated"
    eval_metrics = {
        name: pipeline.run_command(f"evaluate {name}", name, evaluate_model.COMMAND, evaluate_model.EvaluateConfig(
            checkpoint=model_folder, split=split, record=record_config, clip_baseline=config.clip_baseline
        ))["splits"]
        for name, split in ((TRAIN_SPLIT, seen), ("unseen", Split(name=ALL_UNSEEN)))
    }  # fmt: skip
    audit_config = audit.AuditConfig(data=run.path / TRAIN_SPLIT / TRAIN_SPLIT, checkpoint=model_folder)
    audit_metrics = pipeline.run_command("audit", "audit", audit.COMMAND, audit_config)
    metrics: dict[str, Any] = {
        **collect_metrics,
        **train_metrics,
        **calibrate_metrics,
        "splits": {**eval_metrics[TRAIN_SPLIT], **eval_metrics["unseen"]},
        **audit_metrics,
        "seconds": {**pipeline.seconds_by_phase, "total": pipeline.total_seconds},
        "machine": describe_machine(),
        "init_sha256": init_sha256,
    }
    RunFolder(model_folder / CHECKPOINT_DIR).write_json(METRICS_FILE, metrics)
    write_atomic(model_folder / CHECKPOINT_DIR / CARD_FILE, model_card(metrics))
    if config.install_dir is not None:
        install_checkpoint(model_folder / CHECKPOINT_DIR, config.install_dir)
        reporter.log(f"the model and its card are in {config.install_dir}")
    run.write_json("metrics.json", metrics)


def install_checkpoint(checkpoint: Path, install_dir: Path) -> None:
    """Copy the model to a folder and remove the weights of the previous one; file names are content hashes."""
    old_weights = set(install_dir.glob("tensors-*.safetensors"))
    shutil.copytree(checkpoint, install_dir, dirs_exist_ok=True)
    for weights in old_weights - {install_dir / path.name for path in checkpoint.iterdir()}:
        weights.unlink()


COMMAND = Command(resumable=True, schema=BuildCheckpointConfig, main=main)
