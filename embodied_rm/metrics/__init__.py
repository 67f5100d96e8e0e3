"""Metrics of reward models: rank correlation, error, success, subtasks, preferences, reward distances, calibration.

All functions are pure. An undefined value (the correlation of a constant, the AUC of one class) is `nan`, never 0.
See `docs/metrics.md` for definitions, ranges and sources.
"""

from embodied_rm.metrics.calibration import (
    conformal_scale,
    coverage,
    expected_calibration_error,
    prediction_interval,
    split_halves,
)
from embodied_rm.metrics.classification import (
    best_threshold,
    break_even_threshold,
    match_segments,
    mcc,
    preference_credit,
    preferred_pairs,
    roc_auc,
    segmentation_f1,
    terciles,
)
from embodied_rm.metrics.progress import effective_resolution, kendall_tau_a, mae, spearman, voc, voc_f1
from embodied_rm.metrics.reward_distance import (
    epic_distance,
    epic_of_state_rewards,
    starc_distance,
    starc_of_transitions,
)
from embodied_rm.metrics.statistics import (
    first_iteration_reaching,
    mean_band,
    paired_difference,
    paired_permutation,
    wilson_interval,
)

__all__ = [
    "best_threshold",
    "break_even_threshold",
    "conformal_scale",
    "coverage",
    "effective_resolution",
    "epic_distance",
    "epic_of_state_rewards",
    "expected_calibration_error",
    "first_iteration_reaching",
    "kendall_tau_a",
    "mae",
    "match_segments",
    "mcc",
    "mean_band",
    "paired_difference",
    "paired_permutation",
    "prediction_interval",
    "preference_credit",
    "preferred_pairs",
    "roc_auc",
    "segmentation_f1",
    "spearman",
    "split_halves",
    "starc_distance",
    "starc_of_transitions",
    "terciles",
    "voc",
    "voc_f1",
    "wilson_interval",
]
