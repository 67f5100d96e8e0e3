"""The audit itself: every case on one model, from its videos through its curves to a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from embodied_rm.audit.cases import AUDIT_CASES, AuditCase
from embodied_rm.rewards.episode_reward import score_mask
from embodied_rm.audit.test_set import AuditClip, AuditDataset, AuditRewardConfig, AuditTrial, select_frames
from embodied_rm.metrics import wilson_interval
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.models.scoring import score_episodes
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode, RewardOutput


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What became of one case."""

    case: AuditCase
    value: float | None
    """Mean over the trials; None: the data hold nothing to try it on."""
    n: int
    """Trials."""
    worst_clip: AuditClip | None = None
    """Of a case that failed: the video that did worst."""
    worst_curve: RewardOutput | None = None
    """The model's prediction of it."""

    @property
    def passed(self) -> bool | None:
        """None: left out, or not judged."""
        return None if self.value is None else self.case.meets_expectation(self.value)

    def as_dict(self) -> dict[str, object]:
        """For metrics.json. Shares of yes and no carry their 95 % interval (Wilson)."""
        if self.value is None:
            return {"skipped": f"needs {self.case.required_data}"}
        row = {"expected": self.case.expected, "value": self.value, "num_trials": self.num_trials, "passed": self.passed}
        if self.case.is_rate:
            row["interval"] = list(wilson_interval(round(self.value * self.n), self.n))
        return row


def audit(
    model: RewardModel, episodes: Iterable[Episode], config: AuditRewardConfig, reporter: Reporter
) -> list[AuditResult]:
    """Try every case of `CASES` on a model behind the contract, in that order.

    Episodes are those that the model can see: its views, at its image size. Raises `DataError` when nothing is known
    of how any of them ended. A case that the data hold nothing for is left out by name.
    """
    dataset = AuditDataset(list(episodes), config)
    groups = [(trials, list(cases)) for trials, cases in groupby(AUDIT_CASES, key=lambda case: case.make_trials)]
    results, predicts_success = [], model.capabilities.predicts_success
    for make_trials, cases in reporter.track(groups, "audit"):
        trials = make_trials(dataset)
        curves = score_trials(model, trials, config)
        results += [
            evaluate_case(case, trials, curves, config)
            if predicts_success or not case.tests_success_prediction
            else skip_case(case)
            for case in cases
        ]
    return results


def skip_case(case: AuditCase) -> AuditResult:
    """The case left out: a model that never says that a task is done can neither pass it nor fail."""
    return AuditResult(case=replace(case, required_data="a model that says when a task is done"), value=None, n=0)


def score_trials(
    model: RewardModel, trials: Sequence[AuditTrial], config: AuditRewardConfig
) -> list[tuple[RewardOutput, ...]]:
    """The prediction of every video of every trial: all first videos side by side, then all second ones, and so on.

    As in refinement, the model sees the frames that are scored and no other; between two of them it says what it said.
    """
    subgoal_model = SubgoalRewardModel(model, config.reward.success_threshold, config.reward.success_patience)
    curves = [
        score_with_hold(subgoal_model, [clip.episode for clip in clips], config) for clips in zip(*trials, strict=True)
    ]
    return list(zip(*curves, strict=True))


def score_with_hold(model: RewardModel, episodes: Sequence[Episode], config: AuditRewardConfig) -> list[RewardOutput]:
    """A row a frame for every video."""
    score_masks = [score_mask(len(episode), config.reward.score_every) for episode in episodes]
    scored_episodes = [
        select_frames(episode, np.append(0, np.flatnonzero(mask)))
        for episode, mask in zip(episodes, score_masks, strict=True)
    ]
    return [
        RewardOutput(**{name: column[np.cumsum(mask)] for name, column in vars(curve).items()})
        for curve, mask in zip(score_episodes(model, scored_episodes), score_masks, strict=True)
    ]


def evaluate_case(
    case: AuditCase, trials: Sequence[AuditTrial], curves: Sequence[tuple[RewardOutput, ...]], config: AuditRewardConfig
) -> AuditResult:
    """One case's number, and where it failed the worst of its videos."""
    if not trials:
        return AuditResult(case=case, value=None, n=0)
    values = np.array([case.metric_fn(trial, curve, config) for trial, curve in zip(trials, curves, strict=True)])
    value = float(values.mean())
    if case.meets_expectation(value) is not False:
        return AuditResult(case=case, value=value, n=len(trials))
    too_low = case.min_value is not None and value < case.min_value
    worst = int(values.argmin() if too_low else values.argmax())
    return AuditResult(case=case, value=value, n=len(trials), worst_clip=trials[worst][0], worst_curve=curves[worst][0])
