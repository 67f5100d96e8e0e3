"""Labels that ask a model: steps found in what a frozen encoder sees, and what a reward model would rather see.

`embodied_rm.labels` is pure; its schemes are told by these what they would else take from pixels or from the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from embodied_rm.labels import change_point_subtasks, preferences
from embodied_rm.labels.schemes import Labeler
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.encoders import Encoder, resize_episode
from embodied_rm.models.pretrained import make_encoder
from embodied_rm.models.scoring import score_episodes
from embodied_rm.types import Array, Episode

IMAGE_BATCH_SIZE = 256
"""Images that are encoded side by side."""


def feature_labeler(tower: str, image_size: tuple[int, int]) -> Labeler:
    """`discovered` in the features of a frozen tower: a timm name, or a pretrained open_clip model as `make_encoder`
    takes it. Raises `UserError` or `CheckpointError` where there is none."""
    encoder = make_encoder(tower, image_size, trainable=False).eval()
    return lambda episodes: change_point_subtasks.label(
        episodes, [extract_features(encoder, episode) for episode in episodes]
    )


@torch.no_grad()
def extract_features(encoder: Encoder, episode: Episode) -> Array:
    """float32 [T, V * C]: the encoder's map of each view, averaged over the image."""

    def encode(frames: torch.Tensor) -> torch.Tensor:
        return encoder.encode_image(encoder.preprocess(frames)).mean(dim=(2, 3))

    view_chunks = (torch.from_numpy(frames).split(IMAGE_BATCH_SIZE) for frames in episode.views.values())
    return torch.cat([torch.cat([encode(chunk) for chunk in chunks]) for chunks in view_chunks], dim=1).numpy()


def preference_labeler(checkpoint: Path) -> Labeler:
    """`preferences` of a reward model in the place of the truth. Raises `CheckpointError` where there is none."""
    return lambda episodes: preferences.label(episodes, model_progress(checkpoint, episodes))


def model_progress(checkpoint: Path, episodes: Sequence[Episode]) -> Callable[[Episode], Array]:
    """What the model says of the progress of each of these episodes, scored side by side."""
    net = load_progress_net(checkpoint)
    resized = [resize_episode(episode, net.config.views, net.config.encoder.image_size) for episode in episodes]
    curves = {
        id(original): np.clip(curve.progress, 0, 1)
        for original, curve in zip(episodes, score_episodes(net, resized), strict=True)
    }
    return lambda episode: curves[id(episode)]
