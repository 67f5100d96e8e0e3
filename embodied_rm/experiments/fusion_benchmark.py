"""`embodied-rm bench fusion`: metrics of a model for every fusion and every subset of views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from embodied_rm.evaluate.view_subsets import MaskedViews, iter_view_subsets
from embodied_rm.experiments.evaluate_model import similarity_predictions
from embodied_rm.experiments.load import load_model_and_data, require_progress_net
from embodied_rm.experiments.results_page import describe_machine, write_section
from embodied_rm.models.clip_similarity import ClipSimilarity
from embodied_rm.models.potential_fusion import FusionKind
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.types import Episode

MetricRow = Mapping[str, float]
PROGRESS_METRICS = ("voc", "voc_f1", "mae_successes", "mae_failures", "preference_accuracy", "epic", "starc")
"""Metrics that depend on the fusion; success and subtask predictions are not fused."""
SUCCESS_METRICS = ("success_auc", "completion_accuracy", "mcc")
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
    loaded = load_model_and_data(config.checkpoint, config.data, reporter)
    net, source, episodes = (
        require_progress_net(loaded.model, "bench fusion"),
        loaded.source,
        loaded.read_episodes(reporter),
    )
    truths = ground_truths(episodes)
    goals = find_goal_rows(episodes, f"{config.data}")
    fusion_rows = dict(
        reporter.track(
            measure_fusions(net, episodes, truths, goals), "fusions", total=len(GOAL_FREE_FUSIONS + GOAL_FUSIONS)
        )
    )
    all_rows = list(range(len(episodes)))
    model_baselines = (
        {} if similarity is None else {"similarity": similarity_predictions(similarity, source, all_rows, reporter)}
    )
    fusion_rows |= baseline_rows(list(goals), truths, model_baselines, PROGRESS_METRICS)
    views = [view for view in net.config.views if view in source.views]
    view_rows = dict(
        reporter.track(measure_view_subsets(net, episodes, truths, views), "views", total=2 ** len(views) - 1)
    )
    view_rows |= baseline_rows(all_rows, truths, model_baselines, (*PROGRESS_METRICS, *SUCCESS_METRICS))
    for name, row in {**fusion_rows, **view_rows}.items():
        reporter.table(name, dict(row))
    counts = {"fusions": len(goals), "views": len(episodes)}
    metrics = {"machine": describe_machine(), "episodes": counts, "fusions": fusion_rows, "views": view_rows}
    run.write_json("metrics.json", {"bench": metrics})
    if config.results_page is not None:
        write_section(
            config.results_page,
            "bench fusion",
            markdown_section(fusion_rows, view_rows, counts),
            title="Fusion and views",
        )


def measure_fusions(
    net: ProgressNet, episodes: Sequence[Episode], ground_truths: Sequence[GroundTruth], goals: Mapping[int, int]
) -> Iterator[tuple[str, MetricRow]]:
    """Yield the metrics of each fusion, without and with goal images, over the episodes that have a goal image."""
    goal_episodes, goal_ends = [episodes[row] for row in goals], [episodes[goal] for goal in goals.values()]
    goal_truths = [ground_truths[row] for row in goals]
    for fusion in GOAL_FREE_FUSIONS:
        yield (
            fusion,
            metric_row(predict_episodes(net.with_fusion(fusion), goal_episodes), goal_truths, PROGRESS_METRICS),
        )
    for fusion in GOAL_FUSIONS:
        yield (
            f"{fusion}, with goal",
            metric_row(
                predict_episodes(net.with_fusion(fusion), goal_episodes, goal_ends), goal_truths, PROGRESS_METRICS
            ),
        )


def measure_view_subsets(
    net: ProgressNet, episodes: Sequence[Episode], ground_truths: Sequence[GroundTruth], views: Sequence[str]
) -> Iterator[tuple[str, MetricRow]]:
    """Yield the metrics of each subset of views, with the other views masked."""
    for subset in iter_view_subsets(views):
        yield (
            " + ".join(subset),
            metric_row(
                predict_episodes(MaskedViews(net, subset), episodes),
                ground_truths,
                (*PROGRESS_METRICS, *SUCCESS_METRICS),
            ),
        )


def metric_row(predictions: PredictionSet, ground_truths: Sequence[GroundTruth], columns: Sequence[str]) -> MetricRow:
    """Return the given metrics of predictions, as far as they exist."""
    return select_columns(columns, model_table(predictions, ground_truths))


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
    return "\n".join(
        [
            "## Fusion and views",
            "",
            "`embodied-rm bench fusion`; metrics: `docs/metrics.md`. All rows use the same weights. "
            f"{counts['fusions']} episodes with a goal image from another episode:",
            "",
            *markdown_table("fusion", fusion_rows, PROGRESS_METRICS),
            "",
            f"All {counts['views']} episodes; the other views are masked:",
            "",
            *markdown_table("views", view_rows, (*PROGRESS_METRICS, *SUCCESS_METRICS)),
        ]
    )


def markdown_table(row_heading: str, rows: Mapping[str, MetricRow], columns: Sequence[str]) -> list[str]:
    """Return a Markdown table; "-" for a missing value."""
    cells = {name: [f"{row[c]:.3f}" if c in row else "-" for c in columns] for name, row in rows.items()}
    header = [
        f"| {row_heading} | {' | '.join(c.replace('_', ' ') for c in columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    return header + [f"| {name} | {' | '.join(row)} |" for name, row in cells.items()]


COMMAND = Command(schema=BenchFusionConfig, main=main)
