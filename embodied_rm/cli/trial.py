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
from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.identity import fingerprint
from embodied_rm.models.base import Judge
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.judges.catalog import open_judge
from embodied_rm.models.judges.config import NOBODY, JudgeConfig
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.provenance import DIGITS
from embodied_rm.run import Reporter
from embodied_rm.score import read_for
from embodied_rm.types import Episode


class Trial(NamedTuple):
    """See `on_trial`."""

    model: Judge
    facts: Mapping[str, Any]
    """What its checkpoint says of the model; a judge of other people's has none to say."""
    source: EpisodeSource

    def read(self, reporter: Reporter, stride: int = 1) -> list[Episode]:
        """The recordings as the model sees them. Raises `DataError` naming one whose pictures it was trained on."""
        films = set(self.facts.get("films", ()))
        episodes = []
        for episode in reporter.track(
            read_for(self.model.sight, self.source, stride=stride), "read episodes", total=len(self.source)
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
    judge: JudgeConfig = NOBODY,
) -> Trial:
    """The model in a folder (None: in the box) or the judge in its place, and recordings of which it has seen none.

    `instruction`: what was asked for, where the recordings do not say; `names`: see `open_data`. Raises `UserError`
    where there is no model, `DataError` where it was trained on these recordings.
    """
    (model, facts), source = opened(checkpoint, judge), recordings(data, reporter, instruction, names)
    refuse_trained(facts, source.meta)
    return Trial(model, facts, source)


def opened_net(checkpoint: Path | None) -> tuple[ProgressNet, Mapping[str, Any]]:
    """The model in a folder (None: in the box) and what its checkpoint says of it. Raises `UserError` where there is
    none."""
    folder = reward_model_in(checkpoint)
    return load_progress_net(folder), read_manifest(folder)["facts"]


def ours(model: Judge, key: str) -> ProgressNet:
    """The model, which is one of this package. Raises `UserError` naming the key that only those know."""
    if not isinstance(model, ProgressNet):
        raise UserError(f"{key} is for a checkpoint of this package, not for another judge")
    return model


def opened(checkpoint: Path | None, judge: JudgeConfig = NOBODY) -> tuple[Judge, Mapping[str, Any]]:
    """The same, or the judge in its place. Raises `UserError` where there is none, or one too many."""
    if judge.layout is not None:
        if checkpoint is not None:
            raise UserError(f"checkpoint={checkpoint} and judge={judge.layout} both say who judges: say one of them")
        return open_judge(judge), {}
    return opened_net(checkpoint)
