"""Recordings as demonstrations in context: keys of commands, and the model and the digest of what they name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.api.demonstration_reward_model import (
    DEMONSTRATED,
    FLOAT32,
    check_precision,
    find_direction_checkpoint,
    make_demonstration_model,
    read_thinned,
    thinning_stride,
)
from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP, FeatureMap
from embodied_rm.data.open_dataset import lacks_instruction, open_dataset
from embodied_rm.data.source import EpisodeMeta, EpisodeSource, find_index, stride_indices
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import weights_digest
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.encoded_demonstration import demonstration_stride
from embodied_rm.models.in_context.frozen_encoder import open_frozen_encoder
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE0
from embodied_rm.models.reward_model import InputSpec

FIRST_EPISODE = (0,)


@dataclass(frozen=True, kw_only=True)
class DemonstrationKeys:
    """Keys of a command whose reward model can be one to five demonstrations."""

    demonstration: Path | None = None
    demonstration_indices: tuple[int, ...] = FIRST_EPISODE
    encoder: str = EFFICIENTNET_LITE0.name
    precision: str = FLOAT32

    def check_demonstration_keys(self, *, in_context: bool) -> None:
        """Raise `UserError` for a wrong precision, or for settings of a demonstration that is not the model."""
        check_precision(self.precision)
        settings = ("demonstration_indices", "encoder", "precision")
        changed = [name for name in settings if getattr(self, name) != getattr(DemonstrationKeys, name)]
        if changed and not in_context:
            raise UserError(f"{changed[0]} needs demonstration= as the reward model")


def open_videos(folder: Path, instruction: str | None, features: FeatureMap) -> EpisodeSource:
    """Open a dataset for a model that reads no instruction, so that recordings may lack one."""
    path = resolve_dataset(folder)
    if instruction is None and lacks_instruction(path):
        instruction = DEMONSTRATED
    return open_dataset(path, instruction, features)


def open_demonstration_model(keys: DemonstrationKeys, features: FeatureMap = DEFAULT_FEATURE_MAP) -> DemonstrationModel:
    """Make the model of the demonstrations that the keys name."""
    encoder = open_frozen_encoder(keys.encoder)  # a wrong name is told before any video is decoded
    source, rows = select_demonstrations(keys, features)
    episodes = [read_thinned(source, row, encoder.image_size) for row in rows]
    return make_demonstration_model(episodes, encoder, keys.precision)


def demonstration_digest(keys: DemonstrationKeys, features: FeatureMap = DEFAULT_FEATURE_MAP) -> str:
    """SHA-256 of the encoder, of the direction nets and of the demonstrations."""
    source, rows = select_demonstrations(keys, features)
    annotations = [(source.meta[row].subtasks, source.meta[row].success) for row in rows]
    digests, encoder = f"{hash_episodes(source, rows)} {annotations}", open_frozen_encoder(keys.encoder)
    folder = find_direction_checkpoint(encoder)
    nets = None if folder is None else weights_digest(folder)
    content = f"{encoder.weights_sha256} {nets} {keys.precision} {digests}"
    return hashlib.sha256(content.encode()).hexdigest()


def matching_stride(keys: DemonstrationKeys, features: FeatureMap, source: EpisodeSource) -> int:
    """Return the stride at which videos of a source have the frame rate of the encoded demonstrations."""
    demonstrations, rows = select_demonstrations(keys, features)
    strides = [encoded_stride(demonstrations.meta[row]) for row in rows]
    return InputSpec(frame_rate=demonstrations.fps / min(strides)).frame_stride(source.fps)


def encoded_stride(meta: EpisodeMeta) -> int:
    """Return n such that every n-th frame of a demonstration is encoded, after it was thinned for decoding."""
    stride = thinning_stride(meta)
    return stride * demonstration_stride(len(stride_indices(meta.length, stride)))


def select_demonstrations(keys: DemonstrationKeys, features: FeatureMap) -> tuple[EpisodeSource, list[int]]:
    """Return the dataset of the demonstrations, and their rows in it."""
    assert keys.demonstration is not None
    source = open_videos(keys.demonstration, None, features)
    return source, [find_index(source, index) for index in keys.demonstration_indices]
