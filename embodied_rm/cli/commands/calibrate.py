"""`embodied-rm calibrate`: from a model's doubt to an interval, and what states are usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from embodied_rm.cli.command import Command
from embodied_rm.cli.places import REWARD_MODEL
from embodied_rm.cli.trial import on_trial, ours
from embodied_rm.errors import DataError, UserError
from embodied_rm.evaluate import doubt_table, doubts, truths
from embodied_rm.metrics import conformal_scale, halves
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.fold import fold
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.ood import LEAST, StateDistribution
from embodied_rm.models.plans import wishes_of
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Episode


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """Which model by which data."""

    data: Path
    checkpoint: Path


def start(config: CalibrateConfig, run: RunFolder, reporter: Reporter) -> None:
    """Judge, fit, and leave the calibrated model in the run folder.

    Raises `DataError` for episodes that the model was trained on and where there are too few frames, `UserError` for an
    exported model.
    """
    trial = on_trial(config.checkpoint, config.data, reporter)
    net, facts = ours(trial.model, "calibrate"), trial.facts
    if isinstance(net, OnnxNet):
        raise UserError(
            "an exported model cannot be changed: calibrate the checkpoint it was made from, then export it"
        )
    episodes = trial.read(reporter)
    known = [truth.label for truth in truths(episodes)]
    usual, median = distribution(net, episodes, config.data)
    net = net.calibrated(usual, median)  # it doubts more where states are unusual: the interval is that of this doubt
    curves = fold(net, episodes)
    told = doubt_table(curves, known)
    if np.isnan(told["interval_coverage"]):
        raise DataError(f"{config.data}: too few frames to fit an interval on; give it several episodes")
    scale = conformal_scale(*doubts(curves, known))
    save_progress_net(run.path / REWARD_MODEL, net.calibrated(usual, median, scale), facts)
    numbers = {
        "interval_scale": scale,
        "covered_by_a_half": told["interval_coverage"],
        "usual_ood": median,
        "episodes": len(episodes),
    }
    reporter.table("calibrated", numbers)
    run.write_json("metrics.json", {"calibrate": numbers})


def distribution(net: ProgressNet, episodes: Sequence[Episode], data: Path) -> tuple[StateDistribution, float]:
    """Of the states in one half of the episodes, with the limit from those of the other, and the median of their score.

    Raises `DataError` where there are too few; of several wishes, none tells which one is under way.
    """
    of_one = [episode for episode in episodes if len(wishes_of(episode.instruction)) == 1]
    nothing = torch.zeros(0, net.config.width)
    fitted, held_out = (torch.cat([nothing, *(net.states_of(of_one[i]) for i in half)]) for half in halves(len(of_one)))
    if min(len(fitted), len(held_out)) < LEAST:
        raise DataError(
            f"{data}: got {len(fitted)} and {len(held_out)} frames in two halves of {len(of_one)} episodes of one wish "
            f"each, and what is usual needs {LEAST} in each: record more episodes"
        )
    found = StateDistribution.fitted(fitted, held_out)
    return found, float(found(held_out).median())


COMMAND = Command(schema=CalibrateConfig, start=start)
