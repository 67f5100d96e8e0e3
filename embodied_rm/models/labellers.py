"""Labels that ask a model: steps found in what a frozen encoder sees, and what a reward model would rather see.

`embodied_rm.labels` is pure; its schemes are told by these what they would else take from pixels or from the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from embodied_rm.labels import discovered, preferences
from embodied_rm.labels.schemes import Labeller
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.encoders import Encoder, sized
from embodied_rm.models.fold import fold
from embodied_rm.models.pretrained import make_encoder
from embodied_rm.types import Array, Episode

TOGETHER = 256
"""Pictures that are encoded side by side."""


def by_features(tower: str, image_size: tuple[int, int]) -> Labeller:
    """`discovered` in the features of a frozen tower: a timm name, or a pretrained open_clip model as `make_encoder`
    takes it. Raises `UserError` or `CheckpointError` where there is none."""
    encoder = make_encoder(tower, image_size, trained=False).eval()
    return lambda episodes: discovered.label(episodes, [features(encoder, episode) for episode in episodes])


@torch.no_grad()
def features(encoder: Encoder, episode: Episode) -> Array:
    """float32 [T, V * C]: the encoder's map of each view, averaged over the picture."""

    def seen(frames: torch.Tensor) -> torch.Tensor:
        return encoder.look(encoder.prepare(frames)).mean(dim=(2, 3))

    views = (torch.from_numpy(frames).split(TOGETHER) for frames in episode.views.values())
    return torch.cat([torch.cat([seen(some) for some in parts]) for parts in views], dim=1).numpy()


def by_judge(checkpoint: Path) -> Labeller:
    """`preferences` of a reward model in the place of the truth. Raises `CheckpointError` where there is none."""
    return lambda episodes: preferences.label(episodes, judge_of(checkpoint, episodes))


def judge_of(checkpoint: Path, episodes: Sequence[Episode]) -> Callable[[Episode], Array]:
    """What the model says of the progress of each of these episodes, scored side by side."""
    net = load_progress_net(checkpoint)
    shown = [sized(episode, net.config.views, net.config.encoder.image_size) for episode in episodes]
    curves = {id(one): np.clip(c.value, 0, 1) for one, c in zip(episodes, fold(net, shown), strict=True)}
    return lambda episode: curves[id(episode)]
