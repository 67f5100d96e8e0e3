"""Features of episodes: cells of the frozen encoder, of each video as it is and of augmented copies of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from torch import Tensor

from embodied_rm.atomic_file import write_atomic
from embodied_rm.checkpoint_io import to_safetensors
from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder
from embodied_rm.models.zero_shot import progress_gru, sentence_match
from embodied_rm.models.zero_shot.progress_gru import grid_cells
from embodied_rm.training.video_augment import augment_video
from embodied_rm.types import Episode, Frames

FEATURE_RATE_HZ = 5.0  # frames per second that are encoded
MIN_CROP = 0.7  # smallest crop, fraction of both sides
SIDES = {"left": "right", "right": "left", "leftmost": "rightmost", "rightmost": "leftmost"}


@dataclass(frozen=True)
class EpisodeFeatures:
    """One video, C copies of it; copy 0 is the video as it is. The next ones are augmented, every second mirrored."""

    name: str
    group: str  # the lab
    sentences: tuple[str, str]  # the instruction, and that of a mirrored video
    cells: Tensor  # half [C, T, 16, channels]
    match_cells: Tensor  # half [C, 49, channels]: of the first frame

    def sentence(self, copy: int) -> str:
        """Return the instruction of a copy."""
        return self.sentences[is_mirrored(copy)]


def is_mirrored(copy: int) -> int:
    """1 if a copy is mirrored, else 0."""
    return copy % 2


def mirror_sentence(sentence: str) -> str:
    """Return the sentence of a mirrored video: left and right exchanged."""
    return re.sub(r"[A-Za-z]+", lambda match: SIDES.get(match[0].lower(), match[0]), sentence)


def augmented_copy(frames: Frames, copy: int, rng: np.random.Generator) -> Frames:
    """Return a copy of a video uint8 [T, H, W, 3]: cropped, recolored, and mirrored if its number is odd."""
    augmented = augment_video(frames, MIN_CROP, rng)
    return augmented[:, :, ::-1] if is_mirrored(copy) else augmented


def encode_episodes(
    source: EpisodeSource, rows: Sequence[int], encoder: FrozenEncoder, num_copies: int, folder: Path
) -> Iterator[EpisodeFeatures]:
    """Yield the features of episodes; those in the folder are read, and others written, so that it can be resumed."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        meta = source.meta[row]
        content = hash_episodes(source, [row])
        key = f"{meta.name} {content} {encoder.weights_sha256} {num_copies} {FEATURE_RATE_HZ} {MIN_CROP}"
        path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"
        if path.exists():
            tensors = read_features(path)
        else:
            stride = max(1, round(source.frame_rate(row) / FEATURE_RATE_HZ))
            tensors = encode_copies(source.episode(row, views=source.views[:1], stride=stride), encoder, num_copies)
            write_atomic(path, to_safetensors(tensors))
        sentences = meta.instruction, mirror_sentence(meta.instruction)
        yield EpisodeFeatures(meta.name, meta.metadata.get("lab", ""), sentences, **tensors)


def read_features(path: Path) -> dict[str, Tensor]:
    """Read stored features; `DataError` if the file is damaged."""
    try:
        return parse_tensors(path.read_bytes())
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: damaged ({error}); delete it, and it is computed again") from None


def encode_copies(episode: Episode, encoder: FrozenEncoder, num_copies: int) -> dict[str, Tensor]:
    """Encode the first view of an episode, and augmented copies of it."""
    (frames,) = list(episode.views.values())[:1]
    seed = int.from_bytes(hashlib.sha256(episode.name.encode()).digest()[:8], "little")
    cells, match_cells = [], []
    for copy in range(num_copies):
        video = augmented_copy(frames, copy, np.random.default_rng([seed, copy])) if copy else frames
        levels = encoder.encode(np.ascontiguousarray(video))
        cells.append(grid_cells(levels, progress_gru.GRID).half())
        match_cells.append(grid_cells([level[:1] for level in levels], sentence_match.GRID)[0].half())
    return {"cells": torch.stack(cells), "match_cells": torch.stack(match_cells)}
