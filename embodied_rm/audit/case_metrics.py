"""Metrics of one trial, from its curves; a case has their mean over all trials."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from embodied_rm.audit.returns import compute_rewards, discounted_return, success_frame
from embodied_rm.audit.temporal_perturbations import fit_line
from embodied_rm.audit.test_set import AuditRewardConfig, AuditTrial
from embodied_rm.metrics import mae, voc
from embodied_rm.rewards.transitions import FloatArray
from embodied_rm.types import RewardOutput

TrialMetric = Callable[[AuditTrial, Sequence[RewardOutput], AuditRewardConfig], float]
"""(clips of a trial, prediction of each, settings) -> value; 1 or 0 for yes and no."""

PROGRESS_CHANGE_THRESHOLD = 0.1  # smallest change of progress between two identical frames that counts


def is_predicted_success(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return 1 if the model predicts sustained success."""
    return float(success_frame(curves[0], config, trial[0].eval_start) is not None)


def is_predicted_failure(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return 1 if the model does not predict sustained success."""
    return 1 - is_predicted_success(trial, curves, config)


def order_correlation(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return the order correlation of progress with the frame index, without the first frame; 0 for a constant."""
    return _order_correlation(curves[0], 1, trial[0].num_ordered)


def order_correlation_change(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return the difference of the order correlations of both clips, first frame included."""
    first, second = (_order_correlation(curve, 0, clip.num_ordered) for curve, clip in zip(curves, trial, strict=True))
    return abs(first - second)


def _order_correlation(curve: RewardOutput, start: int, end: int) -> float:
    return float(np.nan_to_num(voc(curve.progress[start:end]), nan=0.0))


def progress_changes(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return 1 if progress differs by more than `PROGRESS_CHANGE_THRESHOLD` between two identical frames."""
    before, after = trial[0].identical_frames
    return float(abs(float(curves[0].progress[after]) - float(curves[0].progress[before])) > PROGRESS_CHANGE_THRESHOLD)


def resembles_time_baseline(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return 1 if progress is closer to a line over time, of any slope, than to the true progress."""
    truth, curve = trial[0].episode.progress, curves[0].progress
    assert truth is not None
    return float(mae(curve, fit_line(curve)) < mae(curve, truth))


def has_lower_return(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return 1 if the discounted return of the first clip is below that of the second."""
    first, second = (discounted_return(compute_rewards(curve, config), config.gamma) for curve in curves)
    return float(first < second)


def has_lower_raw_return(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return the same with raw progress as the reward, in addition to that of success."""
    return has_lower_return(trial, curves, replace(config, reward=replace(config.reward, rule="raw")))


def future_change(trial: AuditTrial, curves: Sequence[RewardOutput], config: AuditRewardConfig) -> float:
    """Return the largest change of any prediction between clips over their common start.

    It is 1 if a value is finite for one clip and not for another.
    """
    length = min(map(len, curves))
    names = vars(curves[0])
    columns = [np.stack([np.float64(getattr(curve, name)[:length]) for curve in curves]) for name in names]
    return max(map(_max_difference, columns))


def _max_difference(column: FloatArray) -> float:
    """Return the largest difference between rows of values [clips, frames]; missing ones are nan."""
    finite = np.isfinite(column)
    change = np.where(finite, column, -np.inf).max(axis=0) - np.where(finite, column, np.inf).min(axis=0)
    return float(np.where(finite.all(axis=0), change, finite.any(axis=0)).max())
