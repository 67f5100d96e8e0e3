"""Evaluate a reward model against annotations: order, error, success and subtasks, with baselines without images."""

from embodied_rm.evaluate.evaluation import (
    GroundTruth,
    baseline_tables,
    evaluate,
    ground_truths,
    model_table,
    predict_baseline,
)
from embodied_rm.evaluate.goal_images import assign_goal_rows
from embodied_rm.evaluate.predictions import PredictionSet, concat_predictions, predict_episodes, reverse_episode
from embodied_rm.evaluate.progress_metrics import actor_tau, frames_until_success, progress_table
from embodied_rm.evaluate.success_metrics import (
    errors_and_uncertainties,
    prediction_table,
    subtask_accuracy,
    success_precision_recall,
    uncertainty_table,
)

__all__ = [
    "GroundTruth",
    "PredictionSet",
    "actor_tau",
    "assign_goal_rows",
    "baseline_tables",
    "concat_predictions",
    "errors_and_uncertainties",
    "evaluate",
    "frames_until_success",
    "ground_truths",
    "model_table",
    "predict_baseline",
    "predict_episodes",
    "prediction_table",
    "progress_table",
    "reverse_episode",
    "subtask_accuracy",
    "success_precision_recall",
    "uncertainty_table",
]
