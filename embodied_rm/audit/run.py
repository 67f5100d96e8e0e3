"""The audit itself: every case on one model, from its films through its curves to a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from embodied_rm.audit.cases import CASES, Case
from embodied_rm.audit.material import Film, Material, Rules, Trial, play
from embodied_rm.audit.payment import due
from embodied_rm.metrics import wilson_interval
from embodied_rm.models.base import RewardModel
from embodied_rm.models.fold import fold
from embodied_rm.models.plans import Plans
from embodied_rm.run import Reporter
from embodied_rm.types import Episode, Progress


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one case."""

    case: Case
    measured: float | None
    """Mean over the trials; None: the data hold nothing to try it on."""
    n: int
    """Trials."""
    worst: Film | None = None
    """Of a case that failed: the film that did worst."""
    curve: Progress | None = None
    """The model's judgement of it."""

    @property
    def passed(self) -> bool | None:
        """None: left out, or not judged."""
        return None if self.measured is None else self.case.holds(self.measured)

    def as_dict(self) -> dict[str, object]:
        """For metrics.json. Shares of yes and no carry their 95 % interval (Wilson)."""
        if self.measured is None:
            return {"left_out": f"needs {self.case.needs}"}
        row = {"expected": self.case.expected, "measured": self.measured, "n": self.n, "passed": self.passed}
        if self.case.share:
            row["interval"] = list(wilson_interval(round(self.measured * self.n), self.n))
        return row


def audit(model: RewardModel, episodes: Iterable[Episode], rules: Rules, reporter: Reporter) -> list[Outcome]:
    """Try every case of `CASES` on a model behind the contract, in that order.

    Episodes are those that the model can see: its views, at its picture size. Raises `DataError` when nothing is known
    of how any of them ended. A case that the data hold nothing for is left out by name.
    """
    material = Material(list(episodes), rules)
    groups = [(trials, list(cases)) for trials, cases in groupby(CASES, key=lambda case: case.trials)]
    outcomes, telling = [], getattr(model, "tells_success", True)
    for make, cases in reporter.track(groups, "audit"):
        trials = make(material)
        curves = judge(model, trials, rules)
        outcomes += [
            outcome(case, trials, curves, rules) if telling or not case.of_verdict else unsaid(case) for case in cases
        ]
    return outcomes


def unsaid(case: Case) -> Outcome:
    """The case left out: a model that never says that a task is done can neither pass it nor fail."""
    return Outcome(case=replace(case, needs="a model that says when a task is done"), measured=None, n=0)


def judge(model: RewardModel, trials: Sequence[Trial], rules: Rules) -> list[tuple[Progress, ...]]:
    """The judgement of every film of every trial: all first films side by side, then all second ones, and so on.

    As in refinement, the model sees the frames that are scored and no other; between two of them it says what it said.
    """
    plans = Plans(model, rules.reward.success_threshold, rules.reward.success_patience)
    columns = [judged(plans, [film.episode for film in column], rules) for column in zip(*trials, strict=True)]
    return list(zip(*columns, strict=True))


def judged(model: RewardModel, films: Sequence[Episode], rules: Rules) -> list[Progress]:
    """A row a frame for every film."""
    scored = [due(len(film), rules.reward.score_every) for film in films]
    seen = [play(film, np.append(0, np.flatnonzero(at))) for film, at in zip(films, scored, strict=True)]
    return [
        Progress(**{name: column[np.cumsum(at)] for name, column in vars(curve).items()})
        for curve, at in zip(fold(model, seen), scored, strict=True)
    ]


def outcome(case: Case, trials: Sequence[Trial], curves: Sequence[tuple[Progress, ...]], rules: Rules) -> Outcome:
    """One case's number, and where it failed the worst of its films."""
    if not trials:
        return Outcome(case=case, measured=None, n=0)
    values = np.array([case.measure(trial, curve, rules) for trial, curve in zip(trials, curves, strict=True)])
    measured = float(values.mean())
    if case.holds(measured) is not False:
        return Outcome(case=case, measured=measured, n=len(trials))
    too_low = case.at_least is not None and measured < case.at_least
    row = int(values.argmin() if too_low else values.argmax())
    return Outcome(case=case, measured=measured, n=len(trials), worst=trials[row][0], curve=curves[row][0])
