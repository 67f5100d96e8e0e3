"""Labelers that run a model: change points in frozen features, and preferences of a reward model."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from embodied_rm.labels import change_points, preferences
from embodied_rm.labels.schemes import Labeler
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.encoders import Encoder, resize_episode
from embodied_rm.models.make_encoder import make_encoder
from embodied_rm.models.scoring import score_episodes
from embodied_rm.types import Array, Episode

IMAGE_BATCH_SIZE = 256  # number of images that are encoded in one batch


def feature_labeler(encoder_name: str, image_size: tuple[int, int]) -> Labeler:
    """Return the labeler `change_points` on features of a frozen encoder, see `make_encoder`."""
    encoder = make_encoder(encoder_name, image_size, trainable=False).eval()
    return lambda episodes: change_points.label(episodes, [extract_features(encoder, episode) for episode in episodes])


@torch.no_grad()
def extract_features(encoder: Encoder, episode: Episode) -> Array:
    """Return the features of each view, averaged over the image; float32 [T, V * C]."""

    def encode(frames: torch.Tensor) -> torch.Tensor:
        return encoder.encode_image(encoder.preprocess(frames)).mean(dim=(2, 3))

    view_chunks = (torch.from_numpy(frames).split(IMAGE_BATCH_SIZE) for frames in episode.views.values())
    return torch.cat([torch.cat([encode(chunk) for chunk in chunks]) for chunks in view_chunks], dim=1).numpy()


def preference_labeler(checkpoint: Path) -> Labeler:
    """Return the labeler `preferences` with the progress of a reward model, loaded at the first call."""
    return lambda episodes: preferences.label(episodes, model_progress(checkpoint, episodes))


def model_progress(checkpoint: Path, episodes: Sequence[Episode]) -> Callable[[Episode], Array]:
    """Score episodes in one batch; return a function from an episode to its predicted progress."""
    net = load_progress_net(checkpoint)
    resized = [resize_episode(episode, net.config.views, net.config.encoder.image_size) for episode in episodes]
    pairs = zip(episodes, score_episodes(net, resized), strict=True)
    curves = {id(original): np.clip(curve.progress, 0, 1) for original, curve in pairs}
    return lambda episode: curves[id(episode)]
