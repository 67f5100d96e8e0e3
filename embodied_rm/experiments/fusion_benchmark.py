"""`embodied-rm bench fusion`: metrics of a model for every fusion and every subset of views."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from embodied_rm.command import Command
from embodied_rm.evaluate import (
    GroundTruth,
    PredictionSet,
    baseline_tables,
    ground_truths,
    model_table,
    predict_episodes,
)
from embodied_rm.evaluate.goal_images import find_goal_rows
from embodied_rm.experiments.evaluate_model import similarity_predictions
from embodied_rm.experiments.load import EvaluationKeys, load_model_and_data, require_progress_net
from embodied_rm.experiments.results_page import write_results
from embodied_rm.models.clip_similarity import ClipSimilarity
from embodied_rm.models.potential_fusion import FusionKind
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.view_subset import ViewSubset
from embodied_rm.report.markdown import format_metrics, markdown_table
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.types import Episode

MetricRow = Mapping[str, float]
PROGRESS_METRICS = ("voc", "voc_f1", "mae_successes", "mae_failures", "preference_accuracy", "epic", "starc")
"""Metrics that depend on the fusion; success and subtask predictions are not fused."""
VIEW_METRICS = (*PROGRESS_METRICS, "success_auc", "completion_accuracy", "mcc")
GOAL_FREE_FUSIONS: tuple[FusionKind, ...] = ("incremental", "forward", "min", "mean", "inverse_variance")
"""Fusions that need no goal image. Without one "consistent" is "mean" (`fusion.fuse_consistent`)."""
GOAL_FUSIONS: tuple[FusionKind, ...] = ("backward", "min", "mean", "inverse_variance", "consistent")
"""Fusions that use a goal image."""


@dataclass(frozen=True, kw_only=True)
class BenchFusionConfig:
    """Config of `bench fusion`."""

    data: Path
    checkpoint: Path | None = None
    clip_baseline: str | None = None
    results_page: Path | None = None


def main(config: BenchFusionConfig, run: RunFolder, reporter: Reporter) -> None:
    """Evaluate all variants; write the metrics and, if set, a section of the results page."""
    similarity = None if config.clip_baseline is None else ClipSimilarity(config.clip_baseline)
    loaded = load_model_and_data(EvaluationKeys(checkpoint=config.checkpoint), config.data, reporter)
    net, source = require_progress_net(loaded.model, "bench fusion"), loaded.source
    episodes = loaded.read_episodes(reporter)
    truths = ground_truths(episodes)
    goals = find_goal_rows(episodes, f"{config.data}")
    fusions = measure_fusions(net, episodes, truths, goals)
    fusion_rows = dict(reporter.track(fusions, "fusions", total=len(GOAL_FREE_FUSIONS + GOAL_FUSIONS)))
    all_rows = list(range(len(episodes)))
    model_baselines = similarity_predictions(similarity, source, all_rows, reporter)
    fusion_rows |= baseline_rows(list(goals), truths, model_baselines, PROGRESS_METRICS)
    views = [view for view in net.config.views if view in source.views]
    subsets = measure_view_subsets(net, episodes, truths, views)
    view_rows = dict(reporter.track(subsets, "views", total=2 ** len(views) - 1))
    view_rows |= baseline_rows(all_rows, truths, model_baselines, VIEW_METRICS)
    for name, row in {**fusion_rows, **view_rows}.items():
        reporter.table(name, dict(row))
    counts = {"fusions": len(goals), "views": len(episodes)}
    metrics = {"episodes": counts, "fusions": fusion_rows, "views": view_rows}
    text = markdown_section(fusion_rows, view_rows, counts)
    write_results(run, config.results_page, "bench fusion", metrics, text, title="Fusion and views")


def measure_fusions(
    net: ProgressNet, episodes: Sequence[Episode], ground_truths: Sequence[GroundTruth], goals: Mapping[int, int]
) -> Iterator[tuple[str, MetricRow]]:
    """Yield the metrics of each fusion, without and with goal images, over the episodes that have a goal image."""
    goal_episodes, goal_ends = [episodes[row] for row in goals], [episodes[goal] for goal in goals.values()]
    goal_truths = [ground_truths[row] for row in goals]
    for suffix, fusions, goal_images in (("", GOAL_FREE_FUSIONS, None), (", with goal", GOAL_FUSIONS, goal_ends)):
        for fusion in fusions:
            predictions = predict_episodes(net.with_fusion(fusion), goal_episodes, goal_images)
            yield f"{fusion}{suffix}", select_columns(PROGRESS_METRICS, model_table(predictions, goal_truths))


def measure_view_subsets(
    net: ProgressNet, episodes: Sequence[Episode], ground_truths: Sequence[GroundTruth], views: Sequence[str]
) -> Iterator[tuple[str, MetricRow]]:
    """Yield the metrics of each subset of views."""
    for subset in iter_view_subsets(views):
        predictions = predict_episodes(ViewSubset(net, subset), episodes)
        yield " + ".join(subset), select_columns(VIEW_METRICS, model_table(predictions, ground_truths))


def iter_view_subsets(views: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Iterate over all non-empty subsets of the views, larger ones first."""
    for count in range(len(views), 0, -1):
        yield from combinations(views, count)


def baseline_rows(
    rows: Sequence[int],
    ground_truths: Sequence[GroundTruth],
    model_baselines: Mapping[str, PredictionSet],
    columns: Sequence[str],
) -> dict[str, MetricRow]:
    """Return the same metrics for the image-free baselines and for other models' predictions."""
    row_truths = [ground_truths[row] for row in rows]
    tables = {
        **baseline_tables(row_truths),
        **{name: model_table(predictions.take(rows), row_truths) for name, predictions in model_baselines.items()},
    }
    return {f"_{name}_": select_columns(columns, numbers) for name, numbers in tables.items()}


def select_columns(columns: Sequence[str], metrics: MetricRow) -> MetricRow:
    """Return the columns that exist."""
    return {name: metrics[name] for name in columns if name in metrics}


def markdown_section(
    fusion_rows: Mapping[str, MetricRow], view_rows: Mapping[str, MetricRow], counts: Mapping[str, int]
) -> str:
    """Return the results as Markdown."""
    lines = [
        "## Fusion and views",
        "",
        "`embodied-rm bench fusion`; metrics: `docs/metrics.md`. All rows use the same weights. "
        f"{counts['fusions']} episodes with a goal image from another episode:",
        "",
        *metric_table("fusion", fusion_rows, PROGRESS_METRICS),
        "",
        f"All {counts['views']} episodes; the other views are masked:",
        "",
        *metric_table("views", view_rows, VIEW_METRICS),
    ]
    return "\n".join(lines)


def metric_table(row_heading: str, rows: Mapping[str, MetricRow], columns: Sequence[str]) -> list[str]:
    """Return a Markdown table of metrics; "-" for a missing value."""
    header = (row_heading, *(column.replace("_", " ") for column in columns))
    return markdown_table(header, [(name, *format_metrics(row, columns)) for name, row in rows.items()])


COMMAND = Command(schema=BenchFusionConfig, main=main)
