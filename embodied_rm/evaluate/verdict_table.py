"""What a judgement says beyond progress: done or not, which step, how sure, how unusual."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.evaluate.curve_table import Table, mean
from embodied_rm.labels.labelled import LabelledEpisode
from embodied_rm.metrics import (
    conformal_scale,
    coverage,
    expected_calibration_error,
    halves,
    mcc,
    roc_auc,
    segment_matches,
    segmentation_f1,
    spearman,
)
from embodied_rm.types import Array, IntArray, Progress


def verdict_table(curves: Sequence[Progress], labels: Sequence[LabelledEpisode], scale: float | None = None) -> Table:
    """The metrics of verdicts, steps and spread; `docs/metrics.md` says what they are. `scale`: see `doubt_table`."""
    return {
        **said_done(curves, labels),
        "step_accuracy": step_accuracy(curves, labels),
        "segmentation_f1": segmentation_f1(matched_segments(curves, labels)),
        **doubt_table(curves, labels, scale),
        "ood_rate": ood_rate(curves),
    }


def said_done(curves: Sequence[Progress], labels: Sequence[LabelledEpisode]) -> Table:
    """The metrics of verdicts; none of a model that never says when a task is done."""
    done = np.array([bool(episode.done[-1]) for episode in labels])
    last = np.array([curve.success[-1] for curve in curves])
    said = np.concatenate([curve.success[1:] for curve in curves])
    if np.isnan(said).any():
        return {}
    precision, recall = verdicts(curves, labels)
    return {
        "success_auc": roc_auc(last, done),
        "mcc": mcc(last >= 0.5, done),
        "completion_accuracy": mean((last >= 0.5) == done),
        "ece": expected_calibration_error(said, np.concatenate([episode.done[1:] for episode in labels])),
        "verdict_precision": precision,
        "verdict_recall": recall,
    }


def verdicts(curves: Sequence[Progress], labels: Sequence[LabelledEpisode]) -> tuple[float, float]:
    """Precision and recall of "done" over all frames; nan where nothing was called done, or nothing was."""
    called = np.concatenate([curve.success >= 0.5 for curve in curves])
    true = np.concatenate([episode.done for episode in labels])
    return mean(true[called]), mean(called[true])


def step_accuracy(curves: Sequence[Progress], labels: Sequence[LabelledEpisode]) -> float:
    """Share of the frames (the first one, which nobody judges, left out) with an annotated step that is named."""
    hits = [named == true for named, true in _steps(curves, labels)]
    return mean(np.concatenate(hits)) if hits else float("nan")


def matched_segments(curves: Sequence[Progress], labels: Sequence[LabelledEpisode]) -> list[tuple[int, int, int]]:
    """`segment_matches` of every episode with annotated steps."""
    return [segment_matches(named, true) for named, true in _steps(curves, labels)]


def doubt_table(curves: Sequence[Progress], labels: Sequence[LabelledEpisode], scale: float | None = None) -> Table:
    """Whether `spread` is large where progress is wrong, and how much intervals made of it cover.

    spread_correlation: Spearman of spread with absolute error over all judged frames. interval_coverage: the share of
    the frames that lie in the intervals of a calibrated model, by its `scale`; without one, the share of one half
    of the episodes' in intervals calibrated on the other, nan where there are too few to calibrate on. Both are nan of
    a model that never doubts.
    """
    if not any(curve.spread.any() for curve in curves):
        return {"spread_correlation": np.nan, "interval_coverage": np.nan}
    everything = fresh = doubts(curves, labels)
    if scale is None:
        fitted, tried = (([curves[i] for i in half], [labels[i] for i in half]) for half in halves(len(curves)))
        scale, fresh = conformal_scale(*doubts(*fitted)), doubts(*tried)
    return {
        "spread_correlation": spearman(*everything),
        "interval_coverage": coverage(*fresh, scale) if np.isfinite(scale) else np.nan,
    }


def ood_rate(curves: Sequence[Progress]) -> float:
    """Share of the frames that are out of distribution, of those of which it is told; nan where it is not."""
    told = np.concatenate([curve.ood[np.isfinite(curve.ood)] for curve in curves])
    return mean(told > 1)


def doubts(curves: Sequence[Progress], labels: Sequence[LabelledEpisode]) -> tuple[Array, Array]:
    """Absolute error of progress and `spread` of all judged frames, float32 [F] each."""
    wrong = [np.abs(c.value[1:] - e.progress[1:]) for c, e in zip(curves, labels, strict=True)]
    nothing = np.zeros(0, np.float32)
    return np.concatenate([nothing, *wrong]), np.concatenate([nothing, *(c.spread[1:] for c in curves)])


def _steps(curves: Sequence[Progress], labels: Sequence[LabelledEpisode]) -> list[tuple[IntArray, IntArray]]:
    """Named and true steps of the judged frames with annotated steps, episode by episode; none of a model that knows
    no steps (stage -1 throughout)."""
    pairs = [(c.stage[1:][e.step[1:] >= 0], e.step[1:][e.step[1:] >= 0]) for c, e in zip(curves, labels, strict=True)]
    if all((named < 0).all() for named, _ in pairs):
        return []
    return [(named, true) for named, true in pairs if len(true)]
