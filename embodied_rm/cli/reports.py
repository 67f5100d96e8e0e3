"""What commands found, as parts of a report and of metrics.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from embodied_rm.audit import Outcome
from embodied_rm.audit.material import play
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.stride import kept_frames
from embodied_rm.labels.hops import true_progress
from embodied_rm.models.base import Judge
from embodied_rm.models.fold import fold
from embodied_rm.report import Check, Curve, Figure, Panel, Rate, SuccessRow
from embodied_rm.report.clip import HEIGHT
from embodied_rm.rl.refine import Refined
from embodied_rm.rl.watch.progress_rows import share
from embodied_rm.score import read_for
from embodied_rm.types import Progress

FRAMES = 600
"""About the most frames of an episode in a report; of a longer one every n-th is shown."""
FIGURES = {
    "voc": "order correlation with time, successes",
    "voc_reversed": "the same, played backwards",
    "success_auc": "success or not at the last frame, AUC",
    "mae_successes": "mean error of progress, successes",
    "mae_failures": "mean error of progress, failures",
    "step_accuracy": "frames whose step is named",
}
"""Metric of `evaluate` -> what it is called on the page."""


def panel(source: EpisodeSource, row: int, curve: Progress | None = None) -> Panel:
    """An episode of a source, beside a model's judgement of its frames if there is one, thinned to about `FRAMES`
    frames."""
    steps, length = source.meta[row].steps, source.meta[row].length
    # Thinning keeps every step: no stride is longer than the shortest of them.
    stride = min([-(-length // FRAMES), *(step.end - step.start for step in steps)])
    kept = kept_frames(length, stride)
    height, width = source.picture_size(row)
    size = None if height <= HEIGHT else (HEIGHT, 2 * round(width * HEIGHT / height / 2))
    episode = source.episode(row, stride=stride, size=size)
    if episode.progress is None and episode.steps:
        episode = replace(episode, progress=true_progress(episode))
    if curve is None:
        return Panel(episode=episode)
    return Panel(episode=episode, progress=curve.value[kept], success=curve.success[kept])


def film_panel(outcome: Outcome) -> Panel:
    """The worst film of a case that failed, thinned to about `FRAMES` frames."""
    assert outcome.worst is not None and outcome.curve is not None
    kept = kept_frames(len(outcome.curve), -(-len(outcome.curve) // FRAMES))
    episode = play(outcome.worst.episode, kept)
    # Above its chart stands which case it is of.
    titled = replace(episode, meta={"outcome": outcome.case.name})
    return Panel(episode=titled, progress=outcome.curve.value[kept], success=outcome.curve.success[kept])


def check(outcome: Outcome) -> Check:
    """A case of an audit as a row of the report."""
    case = outcome.case
    return Check(
        name=case.name,
        done=case.done,
        measured=case.measured,
        expected=case.expected,
        value=outcome.measured,
        n=outcome.n,
        met=outcome.passed,
        why=f"needs {case.needs}" if outcome.measured is None else case.why,
    )


def panels(model: Judge, source: EpisodeSource, count: int) -> tuple[Panel, ...]:
    """Up to `count` episodes of all tasks and outcomes, each judged by the model."""
    rows = spread(source, count)
    curves = fold(model, list(read_for(model.sight, source, rows)))
    return tuple(panel(source, row, curve) for row, curve in zip(rows, curves, strict=True))


def spread(source: EpisodeSource, count: int) -> list[int]:
    """Up to `count` episodes in turn from every task and outcome, in the order of the source."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for row, meta in enumerate(source.meta):
        kinds.setdefault((meta.text.get("task", ""), meta.text.get("outcome", "")), []).append(row)
    turns = [row for turn in zip_longest(*kinds.values()) for row in turn if row is not None]
    return sorted(turns[:count])


def figures(model: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> tuple[Figure, ...]:
    """Headline numbers of an evaluation, each with what a plain clock gets."""
    clock = baselines.get("clock", {})

    def beside(metric: str) -> str:
        return f"a clock: {clock[metric]:.3f}" if metric in clock else ""

    return tuple(
        Figure(label=label, value=model[metric], target=beside(metric))
        for metric, label in FIGURES.items()
        if metric in model
    )


def task_metrics(refined: Refined) -> dict[str, Any]:
    """What metrics.json says of one refined policy; success is the simulator's verdict over `episodes` episodes."""
    rows = refined.rows
    return {
        "cloned_success": refined.cloned.rate,
        "cloned_interval": list(refined.cloned.interval),
        "refined_success": refined.refined.rate,
        "refined_interval": list(refined.refined.interval),
        "iterations": len(rows),
        "episodes": refined.refined.episodes,
        "training_episodes": sum(row["episodes"] for row in rows),
        "env_steps": sum(row["env_steps"] for row in rows),
        "faults": sum(row["faults"] for row in rows),
        "alarms": [row["iteration"] for row in rows if row["alarm"] is not None],
        "seconds": {stage: sum(row["seconds"][stage] for row in rows) for stage in rows[0]["seconds"]},
    }


def success_row(task: str, metrics: Mapping[str, Any]) -> SuccessRow:
    """Success before and after refinement, from `task_metrics`."""

    def rate(name: str) -> Rate:
        low, high = metrics[f"{name}_interval"]
        return Rate(value=metrics[f"{name}_success"], low=low, high=high, episodes=metrics["episodes"])

    return SuccessRow(task=task, rates={"cloned": rate("cloned"), "refined": rate("refined")})


def learning_curves(task: str, rows: Sequence[Mapping[str, Any]]) -> tuple[Curve, ...]:
    """Success, return and doubt over the iterations of a refinement, from the rows of its `progress.jsonl`."""

    def column(name: str) -> list[float | None]:
        return [row[name] for row in rows]

    success = {
        "training episodes, as they were paid": column("success"),
        "training episodes, by the model's verdict": column("learned_success"),
        "watched episodes, by the simulator": column("watched_success"),
        "episodes beside the training, by the model alone": [share(row["unfounded"], row["checked"]) for row in rows],
    }
    if any(row["alarm"] for row in rows):
        success["alarm"] = [float(row["alarm"] is not None) for row in rows]
    return (
        Curve(title=f"{task}: success", x_label="iteration", lines=success, top=1.0),
        Curve(title=f"{task}: shaped return", x_label="iteration", lines={"mean": column("shaped_return")}),
        Curve(
            title=f"{task}: frames that the model scored",
            x_label="iteration",
            lines={"mean spread": column("spread"), "out of distribution": column("ood_rate")},
            top=0.2,
        ),
    )
