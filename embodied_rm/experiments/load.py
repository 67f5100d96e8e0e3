"""A model and the recordings that it is to be judged by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP, FeatureMap
from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.data.provenance import HASH_DIGITS
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError, UserError
from embodied_rm.experiments.datasets import load_dataset
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.judge_config import NO_JUDGE, JudgeConfig
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.paths import resolve_reward_model
from embodied_rm.run_folder import Reporter
from embodied_rm.score import read_episodes_for
from embodied_rm.tabletop.splits import TRAINED_ON_MESSAGE, check_not_trained_on
from embodied_rm.types import Episode


class ModelAndData(NamedTuple):
    """See `on_trial`."""

    model: DescribedRewardModel
    facts: Mapping[str, Any]
    """What its checkpoint says of the model; a judge of other people's has none to say."""
    source: EpisodeSource

    def read_episodes(self, reporter: Reporter, frame_stride: int = 1) -> list[Episode]:
        """The recordings as the model sees them. Raises `DataError` naming one whose images it was trained on."""
        trained_fingerprints = set(self.facts.get("video_hashes", ()))
        episodes = []
        for episode in reporter.track(
            read_episodes_for(self.model.input_spec, self.source, frame_stride=frame_stride),
            "read episodes",
            total=len(self.source),
        ):
            if trained_fingerprints and fingerprint(episode)[:HASH_DIGITS] in trained_fingerprints:
                raise DataError(f"{episode.name}: {TRAINED_ON_MESSAGE}")
            episodes.append(episode)
        return episodes


def load_model_and_data(
    checkpoint: Path | None,
    data: Path,
    reporter: Reporter,
    instruction: str | None = None,
    features: FeatureMap = DEFAULT_FEATURE_MAP,
    judge: JudgeConfig = NO_JUDGE,
) -> ModelAndData:
    """The model in a folder (None: in the box) or the judge in its place, and recordings of which it has seen none.

    `instruction`: what was asked for, where the recordings do not say; `names`: see `open_data`. Raises `UserError`
    where there is no model, `DataError` where it was trained on these recordings.
    """
    (model, facts), source = load_model_or_judge(checkpoint, judge), load_dataset(data, reporter, instruction, features)
    check_not_trained_on(facts, source.meta)
    return ModelAndData(model, facts, source)


def load_net(checkpoint: Path | None) -> tuple[ProgressNet, Mapping[str, Any]]:
    """The model in a folder (None: in the box) and what its checkpoint says of it. Raises `UserError` where there is
    none."""
    folder = resolve_reward_model(checkpoint)
    return load_progress_net(folder), read_manifest(folder)["facts"]


def require_progress_net(model: DescribedRewardModel, key: str) -> ProgressNet:
    """The model, which is one of this package. Raises `UserError` naming the key that only those know."""
    if not isinstance(model, ProgressNet):
        raise UserError(f"{key} is for a checkpoint of this package, not for another judge")
    return model


def load_model_or_judge(
    checkpoint: Path | None, judge: JudgeConfig = NO_JUDGE
) -> tuple[DescribedRewardModel, Mapping[str, Any]]:
    """The same, or the judge in its place. Raises `UserError` where there is none, or one too many."""
    if judge.type is not None:
        if checkpoint is not None:
            raise UserError(f"checkpoint={checkpoint} and judge={judge.type} both say who judges: say one of them")
        return open_judge(judge), {}
    return load_net(checkpoint)
