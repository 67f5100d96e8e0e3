"""Demonstrations in context as a reward model for commands: opened, described and digested."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from embodied_rm.api.demonstration_reward_model import DEMONSTRATED, make_demonstration_model, read_thinned
from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.open_dataset import lacks_instruction
from embodied_rm.data.source import EpisodeSource, find_index
from embodied_rm.experiments.load import load_dataset
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.encoded_demonstration import demonstration_stride
from embodied_rm.models.in_context.frozen_encoder import open_frozen_encoder
from embodied_rm.paths import resolve_dataset
from embodied_rm.run_folder import NullReporter, Reporter


def load_videos(folder: Path, reporter: Reporter, instruction: str | None, features: FeatureMap) -> EpisodeSource:
    """Open a dataset for a model that reads no instruction, so that recordings may lack one."""
    if instruction is None and lacks_instruction(resolve_dataset(folder)):
        instruction = DEMONSTRATED
    return load_dataset(folder, reporter, instruction, features)


def open_demonstration_model(
    folder: Path, indices: Sequence[int], encoder: str, precision: str, features: FeatureMap
) -> DemonstrationModel:
    """Make the model of the demonstrations `indices` in a folder; `precision` is float32 or int8."""
    opened = open_frozen_encoder(encoder)
    source = load_videos(folder, NullReporter(), None, features)
    episodes = [read_thinned(source, find_index(source, index), opened.image_size) for index in indices]
    return make_demonstration_model(episodes, opened, precision)


def demonstration_digest(
    folder: Path, indices: Sequence[int], encoder: str, precision: str, features: FeatureMap
) -> str:
    """SHA-256 of the encoder and of the demonstrations."""
    source = load_videos(folder, NullReporter(), None, features)
    digests = hash_episodes(source, [find_index(source, index) for index in indices])
    content = f"{open_frozen_encoder(encoder).weights_sha256} {precision} {digests}"
    return hashlib.sha256(content.encode()).hexdigest()


def matching_stride(folder: Path, index: int, features: FeatureMap, source: EpisodeSource) -> int:
    """Return the stride at which videos of a source have the frame rate of the encoded demonstration."""
    demonstrations = load_videos(folder, NullReporter(), None, features)
    row = find_index(demonstrations, index)
    stride = demonstration_stride(demonstrations.meta[row].length)
    return max(1, round(stride * source.fps / demonstrations.fps))
