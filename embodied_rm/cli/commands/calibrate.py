"""`embodied-rm calibrate`: from a model's doubt to an interval, and what states are usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from embodied_rm.command import Command
from embodied_rm.errors import DataError, UserError
from embodied_rm.evaluate import errors_and_uncertainties, ground_truths, uncertainty_table
from embodied_rm.experiments.load import load_model_and_data, require_progress_net
from embodied_rm.metrics import conformal_scale, split_halves
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.ood import MIN_SAMPLES, EmbeddingDistribution
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.models.subgoals import split_subgoals
from embodied_rm.paths import CHECKPOINT_DIR
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.types import Episode


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """Which model by which data."""

    data: Path
    checkpoint: Path


def main(config: CalibrateConfig, run: RunFolder, reporter: Reporter) -> None:
    """Judge, fit, and leave the calibrated model in the run folder.

    Raises `DataError` for episodes that the model was trained on and where there are too few frames, `UserError` for an
    exported model.
    """
    loaded = load_model_and_data(config.checkpoint, config.data, reporter)
    net, facts = require_progress_net(loaded.model, "calibrate"), loaded.facts
    if isinstance(net, OnnxNet):
        raise UserError(
            "an exported model cannot be changed: calibrate the checkpoint it was made from, then export it"
        )
    episodes = loaded.read_episodes(reporter)
    labeled = [truth.label for truth in ground_truths(episodes)]
    state_distribution, median_ood = fit_state_distribution(net, episodes, config.data)
    net = net.with_calibration(
        state_distribution, median_ood
    )  # it doubts more where states are unusual: the interval is that of this doubt
    predictions = score_episodes(net, episodes)
    uncertainty_metrics = uncertainty_table(predictions, labeled)
    if np.isnan(uncertainty_metrics["interval_coverage"]):
        raise DataError(f"{config.data}: too few frames to fit an interval on; give it several episodes")
    scale = conformal_scale(*errors_and_uncertainties(predictions, labeled))
    save_progress_net(run.path / CHECKPOINT_DIR, net.with_calibration(state_distribution, median_ood, scale), facts)
    metrics = {
        "interval_scale": scale,
        "half_split_coverage": uncertainty_metrics["interval_coverage"],
        "median_ood": median_ood,
        "episodes": len(episodes),
    }
    reporter.table("calibrated", metrics)
    run.write_json("metrics.json", {"calibrate": metrics})


def fit_state_distribution(
    net: ProgressNet, episodes: Sequence[Episode], data: Path
) -> tuple[EmbeddingDistribution, float]:
    """Of the states in one half of the episodes, with the limit from those of the other, and the median of their score.

    Raises `DataError` where there are too few; of several wishes, none tells which one is under way.
    """
    single_goal_episodes = [episode for episode in episodes if len(split_subgoals(episode.instruction)) == 1]
    no_states = torch.zeros(0, net.config.width)
    fitted, held_out = (
        torch.cat([no_states, *(net.embed_episode(single_goal_episodes[i]) for i in half)])
        for half in split_halves(len(single_goal_episodes))
    )
    if min(len(fitted), len(held_out)) < MIN_SAMPLES:
        raise DataError(
            f"{data}: got {len(fitted)} and {len(held_out)} frames in two halves of {len(single_goal_episodes)} episodes of one wish "
            f"each, and what is usual needs {MIN_SAMPLES} in each: record more episodes"
        )
    state_distribution = EmbeddingDistribution.fit(fitted, held_out)
    return state_distribution, float(state_distribution(held_out).median())


COMMAND = Command(schema=CalibrateConfig, main=main)
