"""The verb: a reward model beside annotation and beside baselines, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.evaluate.blind import blind
from embodied_rm.evaluate.curve_table import Table, actor_tau, finish, mean, progress_table
from embodied_rm.evaluate.judged import Judged, judge
from embodied_rm.evaluate.verdict_table import verdict_table
from embodied_rm.labels.labelled import LabelledEpisode, label
from embodied_rm.metrics import voc, voc_f1
from embodied_rm.models.base import RewardModel
from embodied_rm.models.baselines import BASELINES
from embodied_rm.run import Reporter
from embodied_rm.types import Array, Episode


def evaluate(
    model: RewardModel,
    episodes: Iterable[Episode],
    reporter: Reporter,
    judged: Judged | None = None,
    others: Mapping[str, Judged] | None = None,
    rows: Sequence[int] | None = None,
) -> dict[str, object]:
    """`{"reward_model": {metric: value}, "baselines": {name: {metric: value}}, "episodes": {...}}`.

    `docs/metrics.md` has every metric's definition, range and source. What cannot be computed (no failures, no steps)
    is left out.

    `judged`: what the model said, where that is known already. `others`: what further models said, for a row each among
    the baselines. `rows`: which of the episodes are meant by all that, default all; the others only help to find the
    order of a task's steps. Raises `DataError` naming an episode whose true progress is unknown.
    """
    everything = list(episodes)
    chosen, true = range(len(everything)) if rows is None else rows, truths(everything)
    known = [true[row] for row in chosen]
    done = sum(bool(truth.label.done[-1]) for truth in known)
    reporter.note(f"scoring {len(known)} episodes")
    judged = judge(model, [everything[row] for row in chosen]) if judged is None else judged
    seeing = {name: model_table(said, known) for name, said in (others or {}).items()}
    return {
        "reward_model": model_table(judged, known),
        "baselines": {**blind_tables(known), **seeing},
        "episodes": {"successes": done, "failures": len(known) - done},
    }


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is known of an episode."""

    label: LabelledEpisode
    outcome: str | None
    """Who acted: the recorded outcome, None where there is none."""


def truths(episodes: Sequence[Episode]) -> list[Truth]:
    """What is known of each. Raises `DataError` naming an episode whose true progress is unknown."""
    labels = label(episodes)
    return [Truth(label=e, outcome=o.meta.get("outcome")) for e, o in zip(labels, episodes, strict=True)]


def model_table(judged: Judged, known: Sequence[Truth]) -> Table:
    """Every metric of a model's judgement of these episodes that exists."""
    labels = [truth.label for truth in known]
    table = curve_table([curve.value for curve in judged.curves], known)
    undefined = sum(
        np.isnan(voc(c.value[: finish(e)])) for c, e in zip(judged.curves, labels, strict=True) if e.done[-1]
    )
    table["voc_undefined"] = float(undefined or "nan")
    table["voc_reversed"] = mean(voc(curve.value[1:]) for curve in judged.backwards if curve is not None)
    table["voc_f1"] = voc_f1(table["voc"], -table["voc_reversed"])
    return _defined(
        {
            **table,
            **verdict_table(judged.curves, labels, judged.interval_scale),
            "seconds_per_frame": judged.seconds_per_frame,
        }
    )


def blind_tables(known: Sequence[Truth]) -> dict[str, Table]:
    """The same of the curves that see no picture, by name."""
    labels = [truth.label for truth in known]
    return {name: model_table(blind(curve, labels), known) for name, curve in BASELINES.items()}


def curve_table(curves: Sequence[Array], known: Sequence[Truth]) -> Table:
    """Every metric of progress curves; nan where there is none."""
    labels = [truth.label for truth in known]
    tau = actor_tau(curves, labels, [truth.outcome for truth in known])
    return {**progress_table(curves, labels), "actor_tau": tau}


def _defined(table: Table) -> Table:
    return {name: value for name, value in table.items() if not np.isnan(value)}
