"""Compare a reward model with annotation: order, error, success and step, beside curves that see nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from embodied_rm.labels.frames import LabelledEpisode, label
from embodied_rm.metrics import mae, roc_auc, voc
from embodied_rm.models.base import RewardModel
from embodied_rm.models.baselines import BASELINES
from embodied_rm.models.fold import fold
from embodied_rm.run import Reporter
from embodied_rm.types import Array, Episode, Progress

Table = dict[str, float]


def evaluate(
    model: RewardModel, episodes: Iterable[Episode], reporter: Reporter, curves: Sequence[Progress] | None = None
) -> dict[str, object]:
    """`{"reward_model": {metric: value}, "baselines": {name: {metric: value}}, "episodes": {...}}`.

    voc, voc_reversed: mean order correlation with time over the successes, up to the frame at which they are done
    (behind it nothing is ordered). Reversed: the model opens the episode at its true first frame and then sees the
    others from the last to the first. mae, mae_successes, mae_failures: mean absolute error with the true progress,
    mean over episodes. success_auc: success or not, by the completion probability at the last frame.
    verdict_precision, verdict_recall: of the frames called done (probability >= 1/2) the share that are, of those that
    are the share called so. step_accuracy: share of the frames with an annotated step whose step is named.
    voc_undefined: successes with a constant curve, which have no order and do not enter the mean; there only if there
    are any. What cannot be computed (no failures, no steps) is left out.

    `curves`: `fold(model, episodes)` where that has been done already. Raises `DataError` naming an episode whose true
    progress is unknown.
    """
    known = list(episodes)
    labels = label(known)
    done = [bool(episode.done[-1]) for episode in labels]
    reporter.note(f"scoring {len(known)} episodes")
    curves = fold(model, known) if curves is None else curves
    backwards = fold(model, [backward(e, t) for e, t, d in zip(known, labels, done, strict=True) if d])
    table = progress_table([curve.value for curve in curves], labels)
    if undefined := sum(np.isnan(voc(c.value[: finish(e)])) for c, e in zip(curves, labels, strict=True) if e.done[-1]):
        table["voc_undefined"] = float(undefined)
    table["voc_reversed"] = _mean(voc(curve.value[1:]) for curve in backwards)
    table["success_auc"] = roc_auc([curve.success[-1] for curve in curves], np.array(done))
    table["verdict_precision"], table["verdict_recall"] = verdicts(curves, labels)
    table["step_accuracy"] = step_accuracy(curves, labels)
    truths = [episode.progress for episode in labels]
    baselines = {name: progress_table([curve(t) for t in truths], labels) for name, curve in BASELINES.items()}
    return {
        "reward_model": _defined(table),
        "baselines": {name: _defined(values) for name, values in baselines.items()},
        "episodes": {"successes": sum(done), "failures": len(done) - sum(done)},
    }


def progress_table(curves: Sequence[Array], labels: Sequence[LabelledEpisode]) -> Table:
    """The metrics of the progress curves alone."""
    pairs = list(zip(curves, labels, strict=True))
    successes = [(curve, episode) for curve, episode in pairs if episode.done[-1]]
    failures = [(curve, episode) for curve, episode in pairs if not episode.done[-1]]
    return {
        "voc": _mean(voc(curve[: finish(episode)]) for curve, episode in successes),
        "mae": _mean(mae(curve, episode.progress) for curve, episode in pairs),
        "mae_successes": _mean(mae(curve, episode.progress) for curve, episode in successes),
        "mae_failures": _mean(mae(curve, episode.progress) for curve, episode in failures),
    }


def finish(episode: LabelledEpisode) -> int:
    """Number of frames up to the first at which the task is done, that one included."""
    return int(episode.done.argmax()) + 1 if episode.done.any() else len(episode)


def backward(episode: Episode, labels: LabelledEpisode) -> Episode:
    """The episode's first frame, then its frames from the one at which it is done back to the first."""
    end = finish(labels)
    views = {name: np.concatenate([frames[:1], frames[:end][::-1]]) for name, frames in episode.views.items()}
    return replace(episode, views=views, steps=(), progress=None, state=None, action=None)


def verdicts(curves: Sequence[Progress], labels: Sequence[LabelledEpisode]) -> tuple[float, float]:
    """Precision and recall of "done" over all frames; nan where nothing was called done, or nothing was."""
    called = np.concatenate([curve.success >= 0.5 for curve in curves])
    true = np.concatenate([episode.done for episode in labels])
    return _mean(true[called]), _mean(called[true])


def step_accuracy(curves: Sequence[Progress], labels: Sequence[LabelledEpisode]) -> float:
    """Share of the frames (the first one, which nobody judges, left out) with an annotated step that is named."""
    hits = [c.stage[1:] == e.step[1:] for c, e in zip(curves, labels, strict=True)]
    known = [e.step[1:] >= 0 for e in labels]
    return _mean(np.concatenate(hits)[np.concatenate(known)])


def _mean(values: Iterable[float]) -> float:
    """The mean of what is defined; nan of nothing."""
    defined = [float(value) for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")


def _defined(table: Table) -> Table:
    return {name: value for name, value in table.items() if not np.isnan(value)}
