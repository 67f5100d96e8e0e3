"""A model and the recordings that it is to be judged by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.cli.places import dataset_in, reward_model_in
from embodied_rm.cli.splits import refuse_trained
from embodied_rm.data.catalog import open_data
from embodied_rm.data.source import EpisodeSource
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet


class Trial(NamedTuple):
    """See `on_trial`."""

    net: ProgressNet
    facts: Mapping[str, Any]
    """What its checkpoint says of the net."""
    source: EpisodeSource


def on_trial(checkpoint: Path | None, data: Path, instruction: str | None = None) -> Trial:
    """The model in a folder (None: in the box), and recordings of which it has seen none.

    `instruction`: what was asked for, where the recordings do not say. Raises `UserError` where there is no model,
    `DataError` where it was trained on these recordings.
    """
    (net, facts), source = opened(checkpoint), open_data(dataset_in(data), instruction)
    refuse_trained(facts, source.meta)
    return Trial(net, facts, source)


def opened(checkpoint: Path | None) -> tuple[ProgressNet, Mapping[str, Any]]:
    """The model in a folder (None: in the box) and what its checkpoint says of it. Raises `UserError` where there is
    none."""
    folder = reward_model_in(checkpoint)
    return load_progress_net(folder), read_manifest(folder)["facts"]
