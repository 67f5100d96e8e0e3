"""Learn from augmented copies of a demonstration how frames are compared; the encoder stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.in_context.alignment import mean_pairwise_distance
from embodied_rm.models.in_context.appearance import squared_distances
from embodied_rm.models.in_context.cell_metric import learn_cell_metric
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel, check_demonstrations
from embodied_rm.models.in_context.encoded_demonstration import (
    EncodedDemonstration,
    EncodingConfig,
    demonstration_stride,
    encode_demonstration,
    encode_frames,
)
from embodied_rm.models.in_context.frozen_encoder import CachingEncoder, FrozenEncoder
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet
from embodied_rm.run_folder import Reporter
from embodied_rm.training.video_augment import augment_video
from embodied_rm.types import Episode, Frames

MAX_FRAMES = 480  # frames of a demonstration that are encoded, evenly spaced
CHANGE_PER_KEYFRAME = 0.1  # a learned metric tells frames apart that are nearer to each other
WEIGHT_AND_NOISE = 1.25  # product of the log likelihood per distance of the frame, and the noise of the copies
NUM_COPIES = 4  # augmented copies of a demonstration
MIN_CROP = 0.85  # smallest crop of a copy, fraction of both sides
MIN_NOISE = 0.2  # noise of copies, see `copy_noise`, below which a frame counts no more
COPY_STRIDE = 2  # every n-th encoded frame is copied


def adapt_demonstrations(
    episodes: Sequence[Episode],
    encoder: FrozenEncoder,
    reporter: Reporter,
    seed: int = 0,
    direction_net: ZeroShotNet | None = None,
) -> DemonstrationModel:
    """Make the model of one to five demonstrations with a metric that is learned from copies of each.

    The result depends on the demonstrations, the encoder and the seed only, and not on how fast the machine is.

    Args:
        episodes: Successful episodes with the same views.
        encoder: The image encoder.
        reporter: Shows progress.
        seed: Of the crops and colors.
        direction_net: See `DemonstrationModel`.

    Raises:
        UserError: As `DemonstrationModel`.
        DataError: When a demonstration shows nothing that changes.
    """
    check_demonstrations(episodes)
    encoded = [adapt_demonstration(episode, encoder, reporter, seed, direction_net) for episode in episodes]
    return DemonstrationModel(encoded, encoder, direction_net)


def adapt_demonstration(
    episode: Episode, encoder: FrozenEncoder, reporter: Reporter, seed: int, direction_net: ZeroShotNet | None = None
) -> EncodedDemonstration:
    """Encode a demonstration, with the learned metric of each of its views and the weight of its frames."""
    caching = CachingEncoder(encoder)
    views = reporter.track(episode.views.items(), f"adapt to {episode.name}", total=len(episode.views))
    stride = COPY_STRIDE * demonstration_stride(len(episode), MAX_FRAMES)
    copies = {name: encode_copies(frames[::stride], caching, encoder, seed) for name, frames in views}
    metrics = {name: learn_cell_metric(cells) for name, cells in copies.items()}
    noise = sum(copy_noise(cells) for cells in copies.values()) / len(copies)
    config = EncodingConfig(
        max_frames=MAX_FRAMES,
        change_per_keyframe=CHANGE_PER_KEYFRAME,
        frame_weight=WEIGHT_AND_NOISE / max(noise, MIN_NOISE),
        metrics=metrics,
    )
    return encode_demonstration(episode, caching, config, direction_net)


def encode_copies(frames: Frames, caching: CachingEncoder, encoder: FrozenEncoder, seed: int) -> Tensor:
    """Encode a video uint8 [T, H, W, 3] and `NUM_COPIES` augmented copies of it; cells float [copies, T, cells, C].

    The frames are encoded again with the demonstration, and their copies are not.
    """
    copies = (augment_video(frames, MIN_CROP, np.random.default_rng([seed, i])) for i in range(NUM_COPIES))
    cells = [encode_frames(frames, caching).coarse, *(encode_frames(copy, encoder).coarse for copy in copies)]
    return torch.stack(cells)


def copy_noise(copies: Tensor) -> float:
    """Mean squared distance of a frame to its copies, as a fraction of the mean squared distance of two frames.

    Args:
        copies: Cells of a video and of copies of it, float [copies, T, cells, C].
    """
    to_copies = (copies[1:] - copies[0]).square().sum(dim=3).mean()
    return float(to_copies / mean_pairwise_distance(squared_distances(copies[0], copies[0])))
