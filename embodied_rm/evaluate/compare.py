"""The verb: a reward model beside annotation and beside baselines, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from embodied_rm.evaluate.curve_table import Table, actor_tau, finish, mean, progress_table
from embodied_rm.evaluate.judged import Judged, judge
from embodied_rm.evaluate.verdict_table import verdict_table
from embodied_rm.labels.frames import label
from embodied_rm.metrics import voc, voc_f1
from embodied_rm.models.base import RewardModel
from embodied_rm.models.baselines import BASELINES, Baseline
from embodied_rm.run import Reporter
from embodied_rm.types import Episode


def evaluate(
    model: RewardModel,
    episodes: Iterable[Episode],
    reporter: Reporter,
    judged: Judged | None = None,
    others: Mapping[str, Judged] | None = None,
) -> dict[str, object]:
    """`{"reward_model": {metric: value}, "baselines": {name: {metric: value}}, "episodes": {...}}`.

    `docs/metrics.md` has every metric's definition, range and source. What cannot be computed (no failures, no steps)
    is left out.

    `judged`: `judge(model, episodes)` where that has been done already. `others`: what further models said of the same
    episodes, for a row each among the baselines. Raises `DataError` naming an episode whose true progress is unknown.
    """
    known = list(episodes)
    labels = label(known)
    done = sum(bool(episode.done[-1]) for episode in labels)
    reporter.note(f"scoring {len(known)} episodes")
    judged = judge(model, known) if judged is None else judged
    seeing = {name: model_table(said, known) for name, said in (others or {}).items()}
    return {
        "reward_model": model_table(judged, known),
        "baselines": {**{name: blind_table(curve, known) for name, curve in BASELINES.items()}, **seeing},
        "episodes": {"successes": done, "failures": len(labels) - done},
    }


def model_table(judged: Judged, episodes: Sequence[Episode]) -> Table:
    """Every metric of a model's judgement of these episodes that exists."""
    labels = label(episodes)
    curves = [curve.value for curve in judged.curves]
    table = {**progress_table(curves, labels), "actor_tau": actor_tau(curves, labels, outcomes(episodes))}
    undefined = sum(np.isnan(voc(c[: finish(e)])) for c, e in zip(curves, labels, strict=True) if e.done[-1])
    table["voc_undefined"] = float(undefined or "nan")
    table["voc_reversed"] = mean(voc(curve.value[1:]) for curve in judged.backwards)
    table["voc_f1"] = voc_f1(table["voc"], -table["voc_reversed"])
    return _defined({**table, **verdict_table(judged.curves, labels), "seconds_per_frame": judged.seconds_per_frame})


def blind_table(baseline: Baseline, episodes: Sequence[Episode]) -> Table:
    """Every metric of a curve that sees no picture."""
    labels = label(episodes)
    curves = [baseline(episode.progress) for episode in labels]
    return _defined({**progress_table(curves, labels), "actor_tau": actor_tau(curves, labels, outcomes(episodes))})


def outcomes(episodes: Sequence[Episode]) -> list[str | None]:
    """Who acted in each: the recorded outcome, None where there is none."""
    return [episode.meta.get("outcome") for episode in episodes]


def _defined(table: Table) -> Table:
    return {name: value for name, value in table.items() if not np.isnan(value)}
