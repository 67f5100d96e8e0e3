"""Clips to train on: cut, resampled, backward and rewound pieces of videos, with their progress.

A demonstration shows only what goes well. A clip that runs backward, or turns around, loses progress.
Source of rewinding: J. Zhang et al., ReWiND: Language-Guided Rewards Teach Robot Policies without New Demonstrations,
CoRL 2025.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from embodied_rm.training.zero_shot.episode_features import EpisodeFeatures
from embodied_rm.types import IntArray

BACKWARD_PROB, REWOUND_PROB = 0.4, 0.2
CUT_END_PROB, CUT_START_PROB = 0.3, 0.3
IRREGULAR_PROB = 0.3  # probability that the frames are at random times instead of equal distances
SPEED_RANGE = (0.6, 1.6)  # frames of the video per frame of the clip
MAX_FRAMES, MIN_FRAMES = 32, 4


class ClipBatch(NamedTuple):
    """B clips of up to T frames; shorter ones repeat their last frame."""

    cells: Tensor  # half [B, T, 16, channels]
    progress: Tensor  # float [B, T]: fraction of the video's time
    known: Tensor  # bool [B, T]; False: repeated


def clip_indices(length: int, rng: np.random.Generator) -> IntArray:
    """Draw the frames of a clip of a video of this length, in the order of the clip."""
    start, stop = 0, length - 1
    if length > MIN_FRAMES and rng.random() < CUT_END_PROB:
        stop = int(rng.integers(max(3, length // 3), length))
    if rng.random() < CUT_START_PROB:
        start = int(rng.integers(0, max(1, min(stop - 3, length // 2))))
    count = int(np.clip(round((stop - start + 1) / rng.uniform(*SPEED_RANGE)), MIN_FRAMES, MAX_FRAMES))
    if rng.random() < IRREGULAR_PROB:
        times = np.sort(rng.uniform(start, stop, count))
    else:
        times = np.linspace(start, stop, count)
    indices = times.round().astype(np.int64)
    kind = rng.random()
    if kind < BACKWARD_PROB:
        return indices[::-1].copy()
    if kind < BACKWARD_PROB + REWOUND_PROB:
        turn = int(rng.integers(2, count))
        back = indices[turn - 2 :: -1][: int(rng.integers(1, turn))]
        return np.concatenate([indices[:turn], back])
    return indices


def new_frames(cells: Tensor, threshold: float) -> list[int]:
    """Indices of the frames [T, 16, C] that differ from the last one kept by more than the threshold, as at scoring."""
    kept = [0]
    for t in range(1, len(cells)):
        if (cells[t] - cells[kept[-1]]).square().sum(dim=1).mean() > threshold:
            kept.append(t)
    return kept


def draw_clip(episode: EpisodeFeatures, threshold: float, rng: np.random.Generator) -> tuple[Tensor, Tensor, int]:
    """Draw a clip: cells [T, 16, C], progress [T], and the copy that it is of."""
    copy = int(rng.integers(len(episode.cells)))
    length = episode.cells.shape[1]
    indices = clip_indices(length, rng)
    cells = episode.cells[copy, torch.from_numpy(indices)].float()
    kept = new_frames(cells, threshold)
    progress = torch.from_numpy(indices[kept] / max(length - 1, 1)).float()
    return cells[kept].half(), progress, copy


def draw_batch(
    episodes: list[EpisodeFeatures], size: int, threshold: float, rng: np.random.Generator
) -> tuple[ClipBatch, list[str]]:
    """Draw a batch of clips of different videos, and their instructions."""
    chosen = [episodes[i] for i in rng.choice(len(episodes), min(size, len(episodes)), replace=False)]
    clips = [draw_clip(episode, threshold, rng) for episode in chosen]
    length = max(len(progress) for _, progress, _ in clips)
    pad = [torch.arange(length).clamp_max(len(progress) - 1) for _, progress, _ in clips]
    batch = ClipBatch(
        torch.stack([cells[index] for (cells, _, _), index in zip(clips, pad, strict=True)]),
        torch.stack([progress[index] for (_, progress, _), index in zip(clips, pad, strict=True)]),
        torch.stack([torch.arange(length) < len(progress) for _, progress, _ in clips]),
    )
    return batch, [episode.sentence(copy) for episode, (_, _, copy) in zip(chosen, clips, strict=True)]
