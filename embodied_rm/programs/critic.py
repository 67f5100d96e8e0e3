"""`criticize`: whether a reward program tells experts from failures, before anything learns from it.

Source: Auto MC-Reward (Li et al., arXiv 2312.09238), whose critic reviews a program before it is used. This one decides
by recorded episodes: experts, and kinds of failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.metrics import roc_auc
from embodied_rm.programs.interpreter import evaluate
from embodied_rm.programs.program import Program
from embodied_rm.rewards.transitions import FloatArray

MIN_RANGE = 1e-3  # smallest range of an output that is not constant
MIN_FINAL_PROGRESS = 0.9  # smallest median progress at the end of experts
MIN_FALL = 0.05  # smallest fall of progress from start to end that is one
MAX_START_PROGRESS = 0.5  # largest mean progress before anything is done
MIN_AUC = 0.9  # smallest probability that an expert is above a failure of one kind


@dataclass(frozen=True, kw_only=True)
class RecordedStates:
    """The states of one episode."""

    outcome: str  # kind of failure, or success
    is_success: bool
    values: Mapping[str, FloatArray]  # variable -> numbers float [T] or points float [T, 3]

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))


@dataclass(frozen=True, kw_only=True)
class ProgramIssue:
    """Why a program is refused."""

    kind: str  # key of `ISSUES`
    reason: str  # one sentence, for the person or model that writes the next program


ISSUES: Mapping[str, str] = {
    "undefined": "the output is NaN or infinite in some state",
    "out_of_range": "progress leaves [0, 1]",
    "constant": "the output is the same in all states",
    "wrong_sign": "experts end lower than they start",
    "not_reached": "experts do not reach the end of the scale",
    "high_start": "progress is high before anything is done",
    "confuses": "a kind of failure ends as high as experts do",
    "pays_waiting": "an episode that goes on earns more than one that succeeds",
}
"""Kind of issue -> what it is."""


@dataclass(frozen=True, kw_only=True)
class ProgramOutputs:
    """What a program computes in recorded episodes."""

    episodes: Sequence[RecordedStates]
    values: Sequence[FloatArray]  # output in each state, [T] per episode
    gamma: float  # discount of returns

    @property
    def experts(self) -> list[FloatArray]:
        """Return the outputs in the episodes that succeed."""
        return [values for episode, values in zip(self.episodes, self.values, strict=True) if episode.is_success]


def criticize(program: Program, episodes: Sequence[RecordedStates], *, gamma: float = 0.98) -> list[ProgramIssue]:
    """Return the issues of a program; none if it may be used.

    Args:
        program: A checked program.
        episodes: Experts and failures of the task, recorded to the same time limit; experts end at success.
        gamma: Discount of the returns of `reward` programs.
    """
    assert any(e.is_success for e in episodes) and not all(e.is_success for e in episodes), "both outcomes are needed"
    outputs = ProgramOutputs(episodes=episodes, values=split_outputs(program, episodes), gamma=gamma)
    checks = PROGRESS_CHECKS if program.output == "progress" else REWARD_CHECKS
    for check in (check_finite, check_constant, *checks):
        issues = check(outputs)
        if issues:  # a later check would repeat the same issue in other words
            return issues
    return []


def split_outputs(program: Program, episodes: Sequence[RecordedStates]) -> list[FloatArray]:
    """Return the output of the program in each state, float [T] per episode."""
    names = episodes[0].values
    values = {name: np.concatenate([episode.values[name] for episode in episodes]) for name in names}
    output = evaluate(program, values)[program.output]
    return np.split(output, np.cumsum([len(episode) for episode in episodes])[:-1])


def check_finite(outputs: ProgramOutputs) -> list[ProgramIssue]:
    """Find values that are undefined."""
    bad = sum(int((~np.isfinite(values)).sum()) for values in outputs.values)
    total = sum(map(len, outputs.values))
    reason = f"the output is NaN or infinite in {bad} of {total} states: look for divisions by 0, sqrt and log"
    return [ProgramIssue(kind="undefined", reason=reason)] if bad else []


def check_constant(outputs: ProgramOutputs) -> list[ProgramIssue]:
    """Find an output that is constant."""
    low, high = value_range(outputs)
    reason = f"the output is {low:.3g} in all states of all episodes"
    return [ProgramIssue(kind="constant", reason=reason)] if high - low < MIN_RANGE else []


def check_range(outputs: ProgramOutputs) -> list[ProgramIssue]:
    """Find progress outside [0, 1]."""
    low, high = value_range(outputs)
    reason = f"progress is from {low:.3g} to {high:.3g}, and must stay in [0, 1]: use clip or stages"
    is_outside = low < -MIN_RANGE or high > 1 + MIN_RANGE
    return [ProgramIssue(kind="out_of_range", reason=reason)] if is_outside else []


def value_range(outputs: ProgramOutputs) -> tuple[float, float]:
    """Return the smallest and the largest output."""
    return min(values.min() for values in outputs.values), max(values.max() for values in outputs.values)


def check_scale(outputs: ProgramOutputs) -> list[ProgramIssue]:
    """Find progress that falls, starts high or does not reach 1 on experts."""
    start = float(np.mean([values[0] for values in outputs.experts]))
    end = float(np.median([values[-1] for values in outputs.experts]))
    if end < start - MIN_FALL:
        reason = f"experts start at {start:.2f} and end at {end:.2f}: the sign of a term may be wrong"
        return [ProgramIssue(kind="wrong_sign", reason=reason)]
    if start > MAX_START_PROGRESS:
        return [ProgramIssue(kind="high_start", reason=f"progress is {start:.2f} before anything is done")]
    if end < MIN_FINAL_PROGRESS:
        reason = f"experts end at {end:.2f} after success, and must reach {MIN_FINAL_PROGRESS}: a condition never holds"
        return [ProgramIssue(kind="not_reached", reason=reason)]
    return []


def check_final_progress(outputs: ProgramOutputs) -> list[ProgramIssue]:
    """Find the kinds of failure that end as high as experts do."""
    final = np.array([values[-1] for values in outputs.values])
    return _confusions(outputs.episodes, final, "confuses", "end at a progress of")


def check_returns(outputs: ProgramOutputs) -> list[ProgramIssue]:
    """Find rewards that earn less for success than for any kind of failure.

    The episode of an expert ends at success, with a reward of 1; that of a failure goes on to the time limit.
    """
    if float(np.median([values[-1] - values[0] for values in outputs.experts])) < 0:
        reason = "the reward falls while experts do the task: the sign of a term may be wrong"
        return [ProgramIssue(kind="wrong_sign", reason=reason)]
    returns = []
    for episode, values in zip(outputs.episodes, outputs.values, strict=True):
        discount = outputs.gamma ** np.arange(len(values))
        returns.append((discount * values).sum() + discount[-1] * episode.is_success)
    return _confusions(outputs.episodes, np.array(returns), "pays_waiting", "return")


def _confusions(
    episodes: Sequence[RecordedStates], values: FloatArray, issue_kind: str, verb: str
) -> list[ProgramIssue]:
    """Return an issue per kind of failure whose values are not below those of experts."""
    is_success = np.array([episode.is_success for episode in episodes])
    outcomes = np.array([episode.outcome for episode in episodes])
    issues = []
    for outcome in sorted({episode.outcome for episode in episodes if not episode.is_success}):
        of_kind = ~is_success & (outcomes == outcome)
        rows = is_success | of_kind
        auc = roc_auc(values[rows], is_success[rows])
        if auc < MIN_AUC:
            means = f"{values[of_kind].mean():.2f} on average, experts {values[is_success].mean():.2f}"
            share = f"experts are above in {auc:.0%} of pairs"
            issues.append(ProgramIssue(kind=issue_kind, reason=f"episodes of {outcome!r} {verb} {means}; {share}"))
    return issues


Check = Callable[[ProgramOutputs], list[ProgramIssue]]
PROGRESS_CHECKS: tuple[Check, ...] = (check_range, check_scale, check_final_progress)
REWARD_CHECKS: tuple[Check, ...] = (check_returns,)
"""Checks of programs of progress and of a reward, after those of all programs."""
