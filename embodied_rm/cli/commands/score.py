"""`embodied-rm score`: predict the progress of every frame of recorded episodes."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.api.in_context import (
    DemonstrationKeys,
    demonstration_digest,
    matching_stride,
    open_demonstration_model,
)
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.command import Command, to_base_config
from embodied_rm.data.dataset_hash import hash_episodes, hash_file
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import DataIssue, affected_episodes
from embodied_rm.data.load_dataset import load_dataset, report_issues
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError, UserError
from embodied_rm.evaluate.goal_images import read_goal_episode
from embodied_rm.experiments.episode_panel import episode_panel
from embodied_rm.experiments.load import load_model_or_judge, load_videos
from embodied_rm.models.checkpoint import model_digest
from embodied_rm.models.in_context.frozen_encoder import open_frozen_encoder
from embodied_rm.models.judges.judge_config import JudgeConfig, judge_digest
from embodied_rm.models.load_checkpoint import checkpoint_frame_stride, reads_instruction
from embodied_rm.models.reward_model import ScoresFirstFrame
from embodied_rm.paths import REAL_CHECKPOINT, model_label, resolve_reward_model
from embodied_rm.report import EpisodePanel, Report, write_report
from embodied_rm.run_folder import NullReporter, Reporter, RunFolder
from embodied_rm.score import CorpusScores, ScoreConfig, Scorer, plot_series, read_episodes_for, score_corpus
from embodied_rm.score.score_config import RESUME_IGNORED_KEYS
from embodied_rm.score.write_back import check_writable, write_back

MAX_OOD_RATE = 0.5  # fraction of frames out of distribution from which `score` warns


@dataclass(frozen=True, kw_only=True)
class ScoreCommand(DemonstrationKeys, ScoreConfig):
    """Config of `score`."""

    data: Path
    checkpoint: Path | None = None
    instruction: str | None = None
    goal_images: tuple[Path, ...] = ()
    report_episodes: int = 12
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    rerun: bool = False
    write_back: bool = False
    features: FeatureMap = field(default_factory=FeatureMap)

    @property
    def in_context(self) -> bool:
        """Whether the demonstration itself is the model: nothing else is named."""
        return self.demonstration is not None and self.checkpoint is None and self.judge.type is None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_demonstration_keys(in_context=self.in_context)
        if self.in_context and self.goal_images:
            raise UserError("a demonstration as the model takes no goal image: leave out goal_images=")
        if self.rerun and find_spec("rerun") is None:
            raise UserError("rerun=true needs the Rerun SDK, an optional package: pip install 'embodied-rm[rerun]'")


def main(config: ScoreCommand, run: RunFolder, reporter: Reporter) -> None:
    """Score all episodes that are not scored yet; write table, plots, report and metrics into the run folder."""
    start_s = time.monotonic()
    if config.write_back:
        check_writable(config.data)
    load = load_dataset if needs_instruction(config) else load_videos
    source = load(config.data, reporter, config.instruction, config.features)
    config = choose_bundled_model(config, source.views, reporter)
    reporter.table("score", run_settings(config, source))
    open_model, num_gpus = partial(open_scorer, config, source.views), int(config.judge.device.startswith("cuda"))
    score_config, settings = to_base_config(config, ScoreConfig), result_settings(config)
    if config.frame_stride == ScoreConfig.frame_stride:
        score_config = replace(score_config, frame_stride=model_frame_stride(config, source))
    results = score_corpus(open_model, source, score_config, run, reporter, settings, num_gpus=num_gpus)
    report_issues(results.issues, reporter)
    if config.rerun:
        write_rerun_files(run, source, results, reporter)
    rows = reporter.track(list(results.predictions)[: config.report_episodes], "write report")
    panels = tuple(readable_panels(source, rows, results, reporter))
    label = model_name(config)
    report = Report(title="Scored recordings", subtitle=f"{config.data}, by {label}", episodes=panels)
    write_report(run.file_path("report.html"), report)
    if config.write_back:
        model = {"name": model_name(config), "sha256": settings["model"]}
        reporter.log(f"written beside the dataset: {', '.join(map(str, write_back(run.path, config.data, model)))}")
    metrics = {**count_scores(source, results), "seconds": time.monotonic() - start_s}
    warn_of_unfamiliar_images(metrics.get("ood_rate", 0.0), config, reporter)
    reporter.table("scored", {**metrics, "skipped_episodes": len(metrics["skipped_episodes"])})
    run.write_json("metrics.json", {"score": metrics})


def needs_instruction(config: ScoreCommand) -> bool:
    """Return whether the model reads an instruction. A wrong name is an error here, before any video is decoded."""
    if config.in_context:
        open_frozen_encoder(config.encoder)
        return False
    return config.judge.type is not None or reads_instruction(resolve_reward_model(config.checkpoint))


def model_frame_stride(config: ScoreCommand, source: EpisodeSource) -> int:
    """Return the stride at which the recordings have the frame rate of the model."""
    if config.in_context:
        return matching_stride(config, config.features, source)
    if config.judge.type is not None:
        return 1
    return checkpoint_frame_stride(resolve_reward_model(config.checkpoint), source.fps)


def choose_bundled_model(config: ScoreCommand, views: Sequence[str], reporter: Reporter) -> ScoreCommand:
    """Return the config with the bundled model of real robots, where the default one knows none of the views."""
    if config.checkpoint is not None or config.judge.type is not None or config.in_context:
        return config
    known = read_manifest(resolve_reward_model(None))["net"]["views"]
    if set(known) & set(views) or not REAL_CHECKPOINT.is_dir():
        return config
    reporter.log(
        f"the simulated model knows the views {', '.join(known)}, the data have {', '.join(views)}: scored by "
        f"checkpoint={REAL_CHECKPOINT.name}, the model of real robots"
    )
    return replace(config, checkpoint=Path(REAL_CHECKPOINT.name))


def run_settings(config: ScoreCommand, source: EpisodeSource) -> dict[str, object]:
    """Return the table of the run: data, model and engine."""
    return {
        "episodes": len(config.episode_indices) or len(source),
        "recorded views": source.views,
        "model": model_name(config),
        "engine": config.engine,
        "workers": config.num_workers,
    }


def model_name(config: ScoreCommand) -> str:
    """Return the name of the model for people."""
    if config.in_context:
        return f"{config.demonstration} in context, over {config.encoder}"
    return model_label(config.checkpoint, config.judge)


def open_scorer(config: ScoreCommand, views: Sequence[str]) -> Scorer:
    """Open the model, goal images and demonstration; `views` are those of the recordings."""
    if config.in_context:
        return Scorer(model=open_demonstration_model(config, config.features))
    model, _ = load_model_or_judge(config.checkpoint, config.judge)
    input_spec = model.input_spec
    goal = read_goal_episode(config.goal_images, input_spec.views or views) if config.goal_images else None
    if config.demonstration is None:
        return Scorer(model=model, goal=goal)
    if isinstance(model, ScoresFirstFrame):
        raise UserError(
            f"{model_name(config)} takes no demonstration: without checkpoint= the demonstration itself is the model"
        )
    demo_source = load_dataset(config.demonstration, NullReporter(), config.instruction, config.features)
    return Scorer(model=model, goal=goal, reference=next(read_episodes_for(input_spec, demo_source, [0])))


def result_settings(config: ScoreCommand) -> dict[str, str]:
    """Return digests of everything that decides the scores, see `score_corpus`."""
    judge = config.judge
    if config.in_context:
        return {"model": demonstration_digest(config, config.features)}
    digest = judge_digest(judge) if judge.type is not None else model_digest(resolve_reward_model(config.checkpoint))
    settings = {"model": digest}
    if config.goal_images:
        goal_digests = " ".join(f"{path.stem} {hash_file(path)}" for path in config.goal_images)
        settings["goal_images"] = hashlib.sha256(goal_digests.encode()).hexdigest()
    if config.demonstration is not None:
        demo_source = load_dataset(config.demonstration, NullReporter(), config.instruction, config.features)
        settings["demonstration"] = hash_episodes(demo_source, [0])
    return settings


def warn_of_unfamiliar_images(ood_rate: float, config: ScoreCommand, reporter: Reporter) -> None:
    """Say that the scores are not to be trusted, and what to do, where most frames are out of distribution."""
    if ood_rate > MAX_OOD_RATE:
        advice = "another demonstration" if config.in_context else "demonstration=<a video of the task>, or adapt"
        reporter.log(
            f"{ood_rate:.0%} of the frames are out of distribution: {model_name(config)} does not know such images, "
            f"and its scores are unreliable; try {advice}"
        )


def readable_panels(
    source: EpisodeSource, rows: Iterator[int], results: CorpusScores, reporter: Reporter
) -> Iterator[EpisodePanel]:
    """Yield panels of scored episodes; an episode whose other views cannot be read is reported instead."""
    for row in rows:
        try:
            yield episode_panel(source, row, results.predictions[row])
        except DataError as error:
            report_issues([DataIssue.from_error(error, ())], reporter)


def write_rerun_files(run: RunFolder, source: EpisodeSource, results: CorpusScores, reporter: Reporter) -> None:
    """Write one rrd file per episode; report episodes whose other views cannot be read."""
    from embodied_rm.report.rerun_export import write_rerun

    for row in reporter.track(results.predictions, "write for Rerun"):
        curves = {row: plot_series(results.predictions[row], results.interval_scale)}
        try:
            write_rerun(run, source, curves, NullReporter())
        except DataError as error:
            report_issues([DataIssue.from_error(error, ())], reporter)


def count_scores(source: EpisodeSource, results: CorpusScores) -> dict[str, Any]:
    """Count scored episodes and frames, invalid frames, frames out of distribution, and skipped episodes."""
    num_invalid = num_with_ood = num_ood = 0
    for prediction in results.predictions.values():
        num_invalid += int((~prediction.valid).sum())
        num_with_ood += int(np.isfinite(prediction.ood).sum())
        num_ood += int((prediction.ood > 1).sum())
    return {
        "episodes": len(results.predictions),
        "frames": sum(source.meta[row].length for row in results.predictions),
        "invalid": num_invalid,
        **{f"invalid: {reason}": count for reason, count in sorted(results.num_unscored.items())},
        **({"ood_rate": num_ood / num_with_ood} if num_with_ood else {}),
        "skipped_episodes": [*affected_episodes(source.issues), *affected_episodes(results.issues)],
    }


COMMAND = Command(resumable=True, schema=ScoreCommand, main=main, resume_ignored_keys=RESUME_IGNORED_KEYS)
