"""`embodied-rm calibrate`: fit the confidence interval, the success threshold and the OOD score of a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from embodied_rm.command import Command
from embodied_rm.errors import DataError, UserError
from embodied_rm.evaluate import errors_and_uncertainties, ground_truths, uncertainty_table
from embodied_rm.evaluate.success_metrics import fit_success_threshold
from embodied_rm.experiments.load import EvaluationKeys, load_model_and_data, require_progress_net
from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.metrics import conformal_scale, split_halves
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.ood import MIN_SAMPLES, EmbeddingDistribution
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.models.subgoals import split_subgoals
from embodied_rm.paths import CHECKPOINT_DIR
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.types import Episode, RewardOutput


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """Config of `calibrate`."""

    data: Path
    checkpoint: Path


def main(config: CalibrateConfig, run: RunFolder, reporter: Reporter) -> None:
    """Score the episodes, fit the calibration, and write the calibrated model into the run folder.

    Raises `DataError` if the episodes permit no part of it; the parts that they do not permit are reported.
    """
    loaded = load_model_and_data(EvaluationKeys(checkpoint=config.checkpoint), config.data, reporter)
    net, facts = require_progress_net(loaded.model, "calibrate"), loaded.facts
    if isinstance(net, OnnxNet):
        raise UserError("an exported model cannot be changed: calibrate the original checkpoint, then export it")
    episodes = loaded.read_episodes(reporter)
    labeled = [truth.label for truth in ground_truths(episodes)]
    distribution, median_ood = fit_state_distribution(net, episodes) or (None, None)
    # The interval is fitted on the uncertainty that already grows with the out-of-distribution score.
    net = net.with_calibration(distribution, median_ood)
    predictions = score_episodes(net, episodes)
    scale, half_split_coverage = fit_interval(predictions, labeled) or (None, None)
    threshold = fit_success_threshold(predictions, labeled)
    missing = {
        f"out-of-distribution score (needs {MIN_SAMPLES} frames of single-goal episodes in each half)": distribution,
        "confidence interval (needs the progress of several episodes; an outcome is not enough)": scale,
        "success threshold (needs frames with the task done and frames without, of known outcome)": threshold,
    }
    parts = [part for part, value in missing.items() if value is None]
    if len(parts) == len(missing):
        raise DataError(f"{config.data}: permits no calibration: no {', no '.join(parts)}")
    for part in parts:
        reporter.log(f"not calibrated: {part}")
    save_progress_net(
        run.path / CHECKPOINT_DIR, net.with_calibration(distribution, median_ood, scale, threshold), facts
    )
    metrics = {
        "interval_scale": scale,
        "success_threshold": threshold,
        "half_split_coverage": half_split_coverage,
        "median_ood": median_ood,
        "episodes": len(episodes),
    }
    reporter.table("calibrated", metrics)
    run.write_json("metrics.json", {"calibrate": metrics})


def fit_state_distribution(net: ProgressNet, episodes: Sequence[Episode]) -> tuple[EmbeddingDistribution, float] | None:
    """Fit the distribution of states on one half of the episodes, and its threshold on the other half.

    Also return the median out-of-distribution score of the second half. Episodes with several sub-goals are left out:
    their annotation does not say which sub-goal is current. None: there are too few frames.
    """
    single_goal_episodes = [episode for episode in episodes if len(split_subgoals(episode.instruction)) == 1]
    no_states = torch.zeros(0, net.config.width)
    fitted, held_out = (
        torch.cat([no_states, *(net.embed_episode(single_goal_episodes[i]) for i in half)])
        for half in split_halves(len(single_goal_episodes))
    )
    if min(len(fitted), len(held_out)) < MIN_SAMPLES:
        return None
    state_distribution = EmbeddingDistribution.fit(fitted, held_out)
    return state_distribution, float(state_distribution(held_out).median())


def fit_interval(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]) -> tuple[float, float] | None:
    """Return the scale of the confidence interval, and the coverage of one fitted on half of the episodes.

    None: there are too few frames of known progress.
    """
    coverage = uncertainty_table(predictions, labels)["interval_coverage"]
    return None if np.isnan(coverage) else (conformal_scale(*errors_and_uncertainties(predictions, labels)), coverage)


COMMAND = Command(schema=CalibrateConfig, main=main)
