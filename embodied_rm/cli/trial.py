"""A model and the recordings that it is to be judged by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.cli.places import reward_model_in
from embodied_rm.cli.recordings import recordings
from embodied_rm.cli.splits import SEEN, refuse_trained
from embodied_rm.data.names import AS_STORED, Names
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.labels.frames import fingerprint
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.provenance import DIGITS
from embodied_rm.run import Reporter
from embodied_rm.score import read_for
from embodied_rm.types import Episode


class Trial(NamedTuple):
    """See `on_trial`."""

    net: ProgressNet
    facts: Mapping[str, Any]
    """What its checkpoint says of the net."""
    source: EpisodeSource

    def read(self, reporter: Reporter, stride: int = 1) -> list[Episode]:
        """The recordings as the net sees them. Raises `DataError` naming one whose pictures it was trained on."""
        films = set(self.facts.get("films", ()))
        episodes = []
        for episode in reporter.track(
            read_for(self.net.sight, self.source, stride=stride), "read episodes", total=len(self.source)
        ):
            if films and fingerprint(episode)[:DIGITS] in films:
                raise DataError(f"{episode.name}: {SEEN}")
            episodes.append(episode)
        return episodes


def on_trial(
    checkpoint: Path | None,
    data: Path,
    reporter: Reporter,
    instruction: str | None = None,
    names: Names = AS_STORED,
) -> Trial:
    """The model in a folder (None: in the box), and recordings of which it has seen none.

    `instruction`: what was asked for, where the recordings do not say; `names`: see `open_data`. Raises `UserError`
    where there is no model, `DataError` where it was trained on these recordings.
    """
    (net, facts), source = opened(checkpoint), recordings(data, reporter, instruction, names)
    refuse_trained(facts, source.meta)
    return Trial(net, facts, source)


def opened(checkpoint: Path | None) -> tuple[ProgressNet, Mapping[str, Any]]:
    """The model in a folder (None: in the box) and what its checkpoint says of it. Raises `UserError` where there is
    none."""
    folder = reward_model_in(checkpoint)
    return load_progress_net(folder), read_manifest(folder)["facts"]
