"""What a reward model is judged by: order, error, success, steps, preferences, distances between rewards, calibration.

Every function is pure. What does not exist (the order of a constant, the AUC of one class) is `nan`, never 0.
Definitions, ranges and sources of all of them side by side: `docs/metrics.md`.
"""

from embodied_rm.metrics.calibration import (
    conformal_scale,
    coverage,
    expected_calibration_error,
    prediction_interval,
    split_halves,
)
from embodied_rm.metrics.error import mae
from embodied_rm.metrics.learning import first_iteration_reaching, mean_band
from embodied_rm.metrics.paired import paired_difference, paired_permutation
from embodied_rm.metrics.preference import preference_credit, preferred_pairs, terciles
from embodied_rm.metrics.rank_correlation import kendall_tau_a, spearman, voc, voc_f1
from embodied_rm.metrics.resolution import effective_resolution
from embodied_rm.metrics.reward_distance import epic_distance, starc_distance
from embodied_rm.metrics.subtask_metrics import match_segments, segmentation_f1
from embodied_rm.metrics.success_probability import mcc, roc_auc, wilson_interval
from embodied_rm.metrics.transition_distance import epic_of_state_rewards, starc_of_transitions

__all__ = [
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
