"""`embodied-rm evaluate`: evaluate a reward model on annotated, unseen episodes of a dataset or of splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from embodied_rm.command import Command
from embodied_rm.data.dataset_path import DATASET_DIR
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.renderers import renderers_of, report_other_renderer
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError, lookup
from embodied_rm.evaluate import PredictionSet, concat_predictions, evaluate, predict_episodes
from embodied_rm.evaluate.goal_images import find_goal_rows, read_common_goal
from embodied_rm.experiments.episode_panel import episode_panel
from embodied_rm.experiments.load import (
    EvaluationKeys,
    ModelAndData,
    load_model_and_data,
    load_model_or_judge,
    require_progress_net,
)
from embodied_rm.experiments.one_shot import OneShotConfig, OneShotEvaluator
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.report_parts import FIGURE_LABELS, headline_figures, select_diverse_rows
from embodied_rm.labels.subtasks import task_of
from embodied_rm.models.clip_similarity import ClipSimilarity
from embodied_rm.models.potential_fusion import FUSION_KINDS, FusionKind
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.paths import model_label
from embodied_rm.report import Report, write_report
from embodied_rm.report.markdown import format_metrics
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score import read_episodes_for
from embodied_rm.tabletop.envs import EnvConfig
from embodied_rm.tabletop.splits import (
    ALL_UNSEEN,
    NO_SPLIT,
    Split,
    check_not_trained_on,
    check_split,
    check_split_unseen,
    load_split,
    unseen_splits,
)
from embodied_rm.types import Episode

FUSION_CHOICES: Mapping[str, FusionKind] = {name: name for name in FUSION_KINDS if name != "reference"}
"""Fusions that need no demonstration; one_shot.method=in_context uses the fusion "reference"."""


@dataclass(frozen=True, kw_only=True)
class RecordConfig:
    """How episodes of a split are recorded, see `CollectConfig`."""

    num_successes: int = 10
    num_failures: int = 10
    frame_stride: int = 2
    action_noise: float = 0.3
    speed_range: tuple[float, ...] = (0.6, 1.0)
    seed: int = 1000
    env: EnvConfig = field(default_factory=EnvConfig)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(EvaluationKeys):
    """Config of `evaluate`: the episodes of `data`, or recordings of `split`."""

    data: Path | None = None
    split: Split = field(default_factory=Split)
    record: RecordConfig = field(default_factory=RecordConfig)
    one_shot: OneShotConfig = field(default_factory=OneShotConfig)
    fusion: str | None = None
    use_goal_images: bool = False
    goal_images: tuple[Path, ...] = ()
    clip_baseline: str | None = None
    model_name: str = "reward_model"
    report_episodes: int = 12

    def __post_init__(self) -> None:
        if self.model_name in ("baselines", "episodes", "tasks", "one_shot", "method", ""):
            raise UserError(f"model_name must differ from the other keys of metrics.json, got {self.model_name!r}")
        if self.fusion is not None:
            lookup(FUSION_CHOICES, self.fusion, "fusion")
        if self.use_goal_images and self.goal_images:
            raise UserError("use_goal_images=true and goal_images=[...] both name the goal images: set one of them")
        if self.episode_indices and self.data is None:
            raise UserError("episode_indices= selects episodes of data=..., which is not set")
        if self.one_shot.method is not None and self.data is not None:
            raise UserError("one_shot records a demonstration of each task, which needs split=..., not data=...")
        if self.one_shot.method is not None and self.one_shot.seed == self.record.seed:
            raise UserError(f"one_shot.seed must differ from record.seed, both are {self.record.seed}")


def main(config: EvaluateConfig, run: RunFolder, reporter: Reporter) -> None:
    """Evaluate; write metrics and report. Raises `UserError` unless exactly one of data and split is set."""
    if (config.data is None) == (config.split.name == NO_SPLIT):
        raise UserError("evaluate needs either data=... (recorded episodes) or split=... (recorded by evaluate itself)")
    if config.data is not None:
        loaded = load_model_and_data(config, config.data, reporter)
        loaded = loaded._replace(model=with_fusion(loaded.model, config))
        run.write_json("metrics.json", evaluate_model(loaded, config, f"{config.data}", run, reporter))
        return
    base_model, facts = load_model_or_judge(config.checkpoint, config.judge)
    model = with_fusion(base_model, config)
    splits = [load_split(name) for name in unseen_splits()] if config.split.name == ALL_UNSEEN else [config.split]
    for split in splits:
        check_split(split)
        check_split_unseen(facts, split, config.record.seed)
    split_metrics = {split.name: evaluate_split(model, facts, split, config, run, reporter) for split in splits}
    rows = {name: numbers[config.model_name] for name, numbers in split_metrics.items()}
    reporter.table("splits", metric_table(rows))
    run.write_json("metrics.json", {"splits": split_metrics})


def with_fusion(model: DescribedRewardModel, config: EvaluateConfig) -> DescribedRewardModel:
    """Return the model with the fusion of the config. Raises `UserError` for a model without fusion."""
    if config.fusion is None:
        return model
    return require_progress_net(model, "fusion").with_fusion(FUSION_CHOICES[config.fusion])


def evaluate_split(
    model: DescribedRewardModel,
    facts: Mapping[str, Any],
    split: Split,
    config: EvaluateConfig,
    run: RunFolder,
    reporter: Reporter,
) -> dict[str, Any]:
    """Record the episodes of a split, unless that is done, and evaluate on them, in total and per task."""
    from embodied_rm.tabletop import collect_episodes  # by mujoco, the extra `sim`

    collect_config = collect_episodes.CollectConfig(split=split, **vars(config.record))
    Pipeline(run, reporter).run_command(f"record {split.name}", split.name, collect_episodes.COMMAND, collect_config)
    folder = RunFolder(run.path / split.name)
    source = open_dataset(folder.path / DATASET_DIR)
    check_not_trained_on(facts, source.meta)
    report_other_renderer(facts, renderers_of(source.meta), reporter)
    loaded = ModelAndData(model, facts, source)
    metrics = evaluate_model(loaded, config, f"the split {split.name}", folder, reporter, by_task=True)
    if config.one_shot.method is not None:
        net = require_progress_net(model, "one_shot.method")
        one_shot = OneShotEvaluator(
            net=net, facts=facts, config=config.one_shot, collect_config=collect_config, run=folder, reporter=reporter
        )
        metrics["one_shot"] = evaluate_one_shot(one_shot, source, config)
    return metrics


def evaluate_one_shot(one_shot: OneShotEvaluator, source: EpisodeSource, config: EvaluateConfig) -> dict[str, Any]:
    """Evaluate the model with a demonstration of each task, in total and per task."""
    net, reporter, split = one_shot.net, one_shot.reporter, one_shot.collect_config.split.name
    demonstrations = one_shot.record_demonstrations()
    episodes = list(read_episodes_for(net.input_spec, source))
    rows, goals = select_goals(config, net, episodes, f"the split {split}")
    positions_by_task = {task: positions_of_task(task, episodes, rows) for task in demonstrations}
    predictions_by_task = {}
    for task, positions in reporter.track(positions_by_task.items(), "one shot", total=len(positions_by_task)):
        task_episodes, task_goals = [episodes[rows[i]] for i in positions], goals and [goals[i] for i in positions]
        predictions_by_task[task] = one_shot.predict(demonstrations[task], task_episodes, task_goals)

    def measure(predictions: PredictionSet, positions: Sequence[int]) -> Any:
        return evaluate(net, episodes, reporter, predictions, rows=[rows[i] for i in positions])["reward_model"]

    task_metrics = {task: measure(predictions_by_task[task], where) for task, where in positions_by_task.items()}
    overall = measure(concat_predictions(predictions_by_task.values()), list(chain(*positions_by_task.values())))
    reporter.table(f"one shot, by {config.one_shot.method}", metric_table({split: overall, **task_metrics}))
    return {"method": config.one_shot.method, config.model_name: overall, "tasks": task_metrics}


def evaluate_model(
    loaded: ModelAndData,
    config: EvaluateConfig,
    data_label: str,
    folder: RunFolder,
    reporter: Reporter,
    *,
    by_task: bool = False,
) -> dict[str, Any]:
    """Evaluate the model on these episodes; return the metrics and write the report into the folder."""
    source = loaded.source
    # Opened before the videos are read, so that a wrong name fails at once.
    similarity = None if config.clip_baseline is None else ClipSimilarity(config.clip_baseline)
    model = model_label(config.checkpoint, config.judge)
    reporter.table("evaluate", {"on": data_label, "episodes": len(source), "views": source.views, "model": model})
    episodes = loaded.read_episodes(reporter)
    rows, goals = select_goals(config, loaded.model, episodes, data_label)
    predictions = predict_episodes(loaded.model, [episodes[row] for row in rows], goals)
    other_predictions = similarity_predictions(similarity, source, rows, reporter, loaded.frame_stride)
    metrics: dict[str, Any] = evaluate(loaded.model, episodes, reporter, predictions, other_predictions, rows)
    if len(rows) < len(episodes):
        metrics["episodes"]["skipped_without_goal"] = len(episodes) - len(rows)
    reporter.table(config.model_name, metrics["reward_model"])
    for name, numbers in metrics["baselines"].items():
        reporter.table(f"baseline: {name}", numbers)
    predictions_by_row = dict(zip(rows, predictions.predictions, strict=True))
    report = Report(
        title="Reward model against annotation",
        subtitle=f"{model} on {data_label}; the episodes must be unseen.",
        key_metrics=headline_figures(metrics["reward_model"], metrics["baselines"]),
        episodes=tuple(
            episode_panel(source, row, predictions_by_row[row], loaded.frame_stride)
            for row in select_diverse_rows(source, config.report_episodes)
            if row in predictions_by_row
        ),
    )
    write_report(folder.file_path("report.html"), report)
    if by_task:
        metrics["tasks"] = {}
        for task in dict.fromkeys(task_of(episodes[row]) for row in rows):
            positions = positions_of_task(task, episodes, rows)
            task_rows, task_predictions = [rows[i] for i in positions], predictions.take(positions)
            task_metrics = evaluate(loaded.model, episodes, reporter, task_predictions, rows=task_rows)
            metrics["tasks"][task] = task_metrics["reward_model"]
        reporter.table("tasks", metric_table(metrics["tasks"]))
    return {config.model_name if key == "reward_model" else key: value for key, value in metrics.items()}


def positions_of_task(task: str, episodes: Sequence[Episode], rows: Sequence[int]) -> list[int]:
    """Return the positions in `rows` of the episodes of a task."""
    return [i for i, row in enumerate(rows) if task_of(episodes[row]) == task]


def select_goals(
    config: EvaluateConfig, model: DescribedRewardModel, episodes: Sequence[Episode], data_label: str
) -> tuple[list[int], list[Episode] | None]:
    """Return the rows to evaluate, and their goal images: those of other episodes, the given ones, or None."""
    if config.use_goal_images:
        goal_by_row = find_goal_rows(episodes, data_label)
        return list(goal_by_row), [episodes[goal] for goal in goal_by_row.values()]
    all_rows = list(range(len(episodes)))
    if not config.goal_images:
        return all_rows, None
    views = model.input_spec.views or tuple(episodes[0].views)
    return all_rows, [read_common_goal(config.goal_images, views, episodes, data_label)] * len(episodes)


def similarity_predictions(
    model: ClipSimilarity | None, source: EpisodeSource, rows: Sequence[int], reporter: Reporter, frame_stride: int = 1
) -> dict[str, PredictionSet]:
    """Predict progress by frame-text similarity for every `frame_stride`-th frame; empty without a model."""
    if model is None:
        return {}
    size, tracked_rows = model.config.image_size, reporter.track(rows, "similarity", total=len(rows))
    episodes = (source.episode(row, size=size, stride=frame_stride) for row in tracked_rows)
    return {"similarity": concat_predictions(predict_episodes(model, [episode]) for episode in episodes)}


def metric_table(rows: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return a table with one column per headline metric that any row has; "-" for a missing value."""
    columns = [metric for metric in FIGURE_LABELS if any(metric in metrics for metrics in rows.values())]
    cells = {name: format_metrics(metrics, columns) for name, metrics in rows.items()}
    return {name: "  ".join(map(str.rjust, row, map(len, columns))) for name, row in {"": columns, **cells}.items()}


COMMAND = Command(resumable=True, schema=EvaluateConfig, main=main)
