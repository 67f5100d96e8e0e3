"""Run all cases of an audit on one model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from embodied_rm.audit.cases import AUDIT_CASES, AuditCase
from embodied_rm.audit.test_set import AuditClip, AuditDataset, AuditRewardConfig, AuditTrial, select_frames
from embodied_rm.client.episode_reward import score_mask
from embodied_rm.metrics import wilson_interval
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.models.scoring import score_episodes
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.models.view_agreement import ViewAgreementModel
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode, RewardOutput


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Result of one case."""

    case: AuditCase
    value: float | None  # mean over the trials; None: there are none
    num_trials: int
    worst_clip: AuditClip | None = None  # worst clip of a failed case
    worst_curve: RewardOutput | None = None  # prediction of the worst clip

    @property
    def passed(self) -> bool | None:
        """Whether the value is within the limits; None: skipped, or without limits."""
        return None if self.value is None else self.case.meets_expectation(self.value)

    def as_dict(self) -> dict[str, object]:
        """Return the entry for metrics.json; rates have their 95 % Wilson interval."""
        if self.value is None:
            return {"skipped": f"needs {self.case.required_data}"}
        row: dict[str, object] = {"expected": self.case.expected, "value": self.value}
        row |= {"num_trials": self.num_trials, "passed": self.passed}
        if self.case.is_rate:
            row["interval"] = list(wilson_interval(round(self.value * self.num_trials), self.num_trials))
        return row


def audit(
    model: RewardModel, episodes: Iterable[Episode], config: AuditRewardConfig, reporter: Reporter
) -> list[AuditResult]:
    """Run every case of `AUDIT_CASES` on a model, in that order; a case without data is skipped.

    The episodes have the views and the image size of the model. Raises `DataError` if none has a known outcome.
    """
    threshold = model.capabilities.select_success_threshold(config.reward.success_threshold)
    config = replace(config, reward=replace(config.reward, success_threshold=threshold))
    dataset = AuditDataset(list(episodes), config)
    groups = [(trials, list(cases)) for trials, cases in groupby(AUDIT_CASES, key=lambda case: case.make_trials)]
    results: list[AuditResult] = []
    for make_trials, cases in reporter.track(groups, "audit"):
        trials = make_trials(dataset)
        curves = score_trials(model, trials, config)
        for case in cases:
            if case.tests_success_prediction and not model.capabilities.predicts_success:
                skipped_case = replace(case, required_data="a model that predicts success")
                results.append(AuditResult(case=skipped_case, value=None, num_trials=0))
            else:
                results.append(evaluate_case(case, trials, curves, config))
    return results


def score_trials(
    model: RewardModel, trials: Sequence[AuditTrial], config: AuditRewardConfig
) -> list[tuple[RewardOutput, ...]]:
    """Score every clip of every trial: all first clips in one batch, then all second ones, and so on.

    As in refinement, the model gets only the frames that are scored; the frames in between have the last score.
    """
    if config.reward.success_in_each_view:
        model = ViewAgreementModel(model)
    subgoal_model = SubgoalRewardModel(model, config.reward.success_threshold, config.reward.success_patience)
    batches = ([clip.episode for clip in clips] for clips in zip(*trials, strict=True))
    return list(zip(*(score_with_hold(subgoal_model, batch, config) for batch in batches), strict=True))


def score_with_hold(model: RewardModel, episodes: Sequence[Episode], config: AuditRewardConfig) -> list[RewardOutput]:
    """Return predictions of all frames per episode; unscored frames have the last score."""
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
    """Return the value of a case, and its worst clip if it failed."""
    if not trials:
        return AuditResult(case=case, value=None, num_trials=0)
    values = np.array([case.metric_fn(trial, curve, config) for trial, curve in zip(trials, curves, strict=True)])
    value = float(values.mean())
    if case.meets_expectation(value) is not False:
        return AuditResult(case=case, value=value, num_trials=len(trials))
    too_low = case.min_value is not None and value < case.min_value
    worst = int(values.argmin() if too_low else values.argmax())
    clip, curve = trials[worst][0], curves[worst][0]
    return AuditResult(case=case, value=value, num_trials=len(trials), worst_clip=clip, worst_curve=curve)
