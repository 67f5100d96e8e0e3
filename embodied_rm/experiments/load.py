"""Load a reward model and the episodes that it is evaluated on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from embodied_rm.api.in_context import open_videos
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.data.load_dataset import load_dataset, report_issues
from embodied_rm.data.provenance import HASH_DIGITS
from embodied_rm.data.renderers import renderers_of, report_other_renderer
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.subset import SubsetDataset
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.judges.judge_config import NO_JUDGE, JudgeConfig
from embodied_rm.models.load_checkpoint import load_checkpoint
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.paths import resolve_reward_model
from embodied_rm.run_folder import Reporter
from embodied_rm.score import read_episodes_for
from embodied_rm.tabletop.splits import TRAINED_ON_MESSAGE, check_not_trained_on
from embodied_rm.types import Episode


class ModelAndData(NamedTuple):
    """A reward model and its evaluation data, see `load_model_and_data`."""

    model: DescribedRewardModel
    facts: Mapping[str, Any]  # metadata of the model's checkpoint; empty for a third-party judge
    source: EpisodeSource

    @property
    def frame_stride(self) -> int:
        """Every n-th frame of the episodes is read, so that they have the rate of the model."""
        return self.model.input_spec.frame_stride(self.source.fps)

    def read_episodes(self, reporter: Reporter, frame_stride: int = 1) -> list[Episode]:
        """Read every n-th frame of the episodes, at the views, size and rate of the model.

        Raises `DataError` if it was trained on the images of one.
        """
        frame_stride *= self.frame_stride
        trained_fingerprints = set(self.facts.get("video_hashes", ()))
        reader = read_episodes_for(self.model.input_spec, self.source, frame_stride=frame_stride)
        episodes = []
        for episode in reporter.track(reader, "read episodes", total=len(self.source)):
            if trained_fingerprints and fingerprint(episode)[:HASH_DIGITS] in trained_fingerprints:
                raise DataError(f"{episode.name}: {TRAINED_ON_MESSAGE}")
            episodes.append(episode)
        return episodes


@dataclass(frozen=True, kw_only=True)
class EvaluationKeys:
    """Keys of a command that measures a reward model on stored episodes."""

    checkpoint: Path | None = None  # None: the bundled model
    instruction: str | None = None  # of episodes that have none
    episode_indices: tuple[int, ...] = ()  # empty: all
    features: FeatureMap = field(default_factory=FeatureMap)
    judge: JudgeConfig = field(default_factory=JudgeConfig)  # replaces the checkpoint


def load_model_and_data(keys: EvaluationKeys, data: Path, reporter: Reporter) -> ModelAndData:
    """Load a reward model or the judge that replaces it, and unseen episodes.

    Raises `DataError` if the model was trained on these episodes.
    """
    model, facts = load_model_or_judge(keys.checkpoint, keys.judge)
    source = load_dataset(data, reporter, keys.instruction, keys.features)
    source = SubsetDataset(source, keys.episode_indices) if keys.episode_indices else source
    check_not_trained_on(facts, source.meta)
    report_other_renderer(facts, renderers_of(source.meta), reporter)
    return ModelAndData(model, facts, source)


def load_net(checkpoint: Path | None) -> tuple[ProgressNet, Mapping[str, Any]]:
    """Load the model in a folder (None: the bundled one) and the metadata of its checkpoint."""
    folder = resolve_reward_model(checkpoint)
    return load_progress_net(folder), read_manifest(folder)["facts"]


def load_or_make_net(checkpoint: Path | None, config: NetConfig) -> ProgressNet:
    """Load the model in a folder; None: make a model with random weights, which takes the same time per prediction."""
    if checkpoint is not None:
        return load_net(checkpoint)[0]
    torch.manual_seed(0)
    return ProgressNet(config).eval()


def require_progress_net(model: DescribedRewardModel, key: str) -> ProgressNet:
    """Return the model. Raises `UserError`, naming the config key, if it is not a model of this package."""
    if not isinstance(model, ProgressNet):
        raise UserError(f"{key} is for a checkpoint of this package, not for another judge")
    return model


def load_model_or_judge(
    checkpoint: Path | None, judge: JudgeConfig = NO_JUDGE
) -> tuple[DescribedRewardModel, Mapping[str, Any]]:
    """Load the judge if one is set, else the model in a folder (None: the bundled one). `UserError` if both are set."""
    if judge.type is not None:
        if checkpoint is not None:
            raise UserError(f"checkpoint={checkpoint} and judge={judge.type} both select the model: set one of them")
        from embodied_rm.models.judges.factory import open_judge  # by transformers, which is optional

        return open_judge(judge), {}
    folder = resolve_reward_model(checkpoint)
    return load_checkpoint(folder), read_manifest(folder)["facts"]


def load_videos(folder: Path, reporter: Reporter, instruction: str | None, features: FeatureMap) -> EpisodeSource:
    """As `load_dataset`, for a model that reads no instruction, so that recordings may lack one."""
    source = open_videos(folder, instruction, features)
    report_issues(source.issues, reporter)
    return source
