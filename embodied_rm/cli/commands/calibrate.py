"""`embodied-rm calibrate`: from a model's doubt to an interval, and what states are usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from embodied_rm.cli.command import Command
from embodied_rm.cli.places import REWARD_MODEL
from embodied_rm.cli.trial import on_trial
from embodied_rm.errors import DataError, UserError
from embodied_rm.evaluate import doubt_table, doubts, truths
from embodied_rm.metrics import conformal_scale
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.fold import fold
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.ood import StateDistribution
from embodied_rm.models.plans import wishes_of
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score import read_for
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
    net, facts, source = on_trial(config.checkpoint, config.data)
    if isinstance(net, OnnxNet):
        raise UserError(
            "an exported model cannot be changed: calibrate the checkpoint it was made from, then export it"
        )
    episodes = list(reporter.track(read_for(net.config, source), "read episodes", total=len(source)))
    known = [truth.label for truth in truths(episodes)]
    usual = distribution(net, episodes)
    net = net.calibrated(usual)  # it doubts more where states are unusual: the interval is that of this doubt
    curves = fold(net, episodes)
    halves = doubt_table(curves, known)
    if np.isnan(halves["interval_coverage"]):
        raise DataError(f"{config.data}: too few frames to fit an interval on; give it several episodes")
    scale = conformal_scale(*doubts(curves, known))
    told = {"interval_scale": scale, "covered_by_a_half": halves["interval_coverage"], "episodes": len(episodes)}
    save_progress_net(run.path / REWARD_MODEL, net.calibrated(usual, scale), facts)
    reporter.table("calibrated", told)
    run.write_json("metrics.json", {"calibrate": told})


def distribution(net: ProgressNet, episodes: Sequence[Episode]) -> StateDistribution:
    """Of the states in every other episode, with the limit from those between.

    Raises `DataError` where there are too few; of several wishes, none tells which one is under way.
    """
    of_one = [episode for episode in episodes if len(wishes_of(episode.instruction)) == 1]
    nothing = torch.zeros(0, net.config.width)
    halves = (torch.cat([nothing, *map(net.states_of, of_one[half::2])]) for half in (0, 1))
    return StateDistribution.fitted(*halves)


COMMAND = Command(schema=CalibrateConfig, start=start)
