"""Evaluate a reward model against annotations: order, error, success and subtasks, with baselines without images."""

from embodied_rm.evaluate.evaluation import GroundTruth, baseline_tables, evaluate, ground_truths, model_table
from embodied_rm.evaluate.predictions import PredictionSet, concat_predictions, predict_episodes, reverse_episode
from embodied_rm.evaluate.success_metrics import errors_and_uncertainties, success_pairs, uncertainty_table

__all__ = [
    "GroundTruth",
    "PredictionSet",
    "baseline_tables",
    "concat_predictions",
    "errors_and_uncertainties",
    "evaluate",
    "ground_truths",
    "model_table",
    "predict_episodes",
    "reverse_episode",
    "success_pairs",
    "uncertainty_table",
]
