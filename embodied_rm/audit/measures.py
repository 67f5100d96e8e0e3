"""What is read from the curves of a trial: one number each, whose mean over all trials is the case's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from embodied_rm.audit.material import Rules, Trial
from embodied_rm.audit.payment import discounted, payments, verdict
from embodied_rm.audit.playback import straight
from embodied_rm.metrics import mae, voc
from embodied_rm.rewards.steps import Floats
from embodied_rm.types import Progress

Measure = Callable[[Trial, Sequence[Progress], Rules], float]
"""(films of a trial, the judgement of each, rules) -> its number; of a yes or no 1 or 0."""

MOVED = 0.1
"""Change of progress between two frames that show the same from which it counts."""


def judged_success(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """Whether the sustained verdict says that the task is done."""
    return float(verdict(curves[0], rules, trial[0].judged_from) is not None)


def judged_failure(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """Whether it does not."""
    return 1 - judged_success(trial, curves, rules)


def order(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """Correlation of progress with the order in which the frames are shown, without the first; 0 for a constant."""
    return _order(curves[0], 1, trial[0].ordered)


def order_change(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """How much that correlation, first frame included, differs between the two films."""
    first, second = (_order(curve, 0, film.ordered) for curve, film in zip(curves, trial, strict=True))
    return abs(first - second)


def _order(curve: Progress, start: int, end: int) -> float:
    return float(np.nan_to_num(voc(curve.value[start:end]), nan=0.0))


def moved(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """Whether progress differs by more than `MOVED` between two frames that show the same."""
    before, after = trial[0].alike
    return float(abs(float(curves[0].value[after]) - float(curves[0].value[before])) > MOVED)


def like_a_clock(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """Whether progress is nearer to a straight line over time, of any slope, than to the truth."""
    truth, curve = trial[0].episode.progress, curves[0].value
    assert truth is not None
    return float(mae(curve, straight(curve)) < mae(curve, truth))


def pays_less(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """Whether the first film's discounted return is below the second's."""
    first, second = (discounted(payments(curve, rules), rules.gamma) for curve in curves)
    return float(first < second)


def raw_pays_less(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """The same where progress itself is the reward, beside that of success."""
    return pays_less(trial, curves, replace(rules, reward=replace(rules.reward, rule="raw")))


def future_change(trial: Trial, curves: Sequence[Progress], rules: Rules) -> float:
    """Largest change of any judgement between films that start alike, where they do; 1 where one is told of one film
    and not of another."""
    length = min(map(len, curves))
    names = vars(curves[0])
    columns = [np.stack([np.float64(getattr(curve, name)[:length]) for curve in curves]) for name in names]
    return max(map(_change, columns))


def _change(column: Floats) -> float:
    """Largest difference between rows [films, frames] of numbers, of which those that are not told are nan."""
    told = np.isfinite(column)
    change = np.where(told, column, -np.inf).max(axis=0) - np.where(told, column, np.inf).min(axis=0)
    return float(np.where(told.all(axis=0), change, told.any(axis=0)).max())
