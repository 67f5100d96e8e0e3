"""How far two reward models are apart on the same random pictures."""

from __future__ import annotations

import numpy as np

from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.types import Array, Progress, Views

SENTENCES = ("lift the red cube", "open the drawer", "put the cup away")
JUDGED = ("value", "success", "spread", "ood")


def differences(one: ProgressNet, other: ProgressNet, num_envs: int = 8, moments: int = 6) -> dict[str, float]:
    """Largest difference of progress, success, spread and out-of-distribution score (as a share of it; left out where
    it is not told), with goals and views that come and go."""
    curves = [judged(net, num_envs, moments) for net in (one, other)]
    pairs = list(zip(*curves, strict=True))
    return {name: max(apart(getattr(a, name), getattr(b, name)) for a, b in pairs) for name in JUDGED}


def apart(one: Array, other: Array) -> float:
    """Largest difference; of numbers above 1 as a share of them. Where neither is a number they are alike."""
    assert (np.isnan(one) == np.isnan(other)).all()
    return float(np.nan_to_num(np.abs(one - other) / np.maximum(np.abs(one), 1)).max())


def judged(net: ProgressNet, num_envs: int, moments: int) -> list[Progress]:
    """What a model says of a random film; the same film for models of the same configuration."""
    rng = np.random.default_rng(0)
    opening, goal, *film = (random_views(net, rng, num_envs) for _ in range(moments + 2))
    instructions = [SENTENCES[i % len(SENTENCES)] for i in range(num_envs)]
    memory, curve = net.begin(opening, instructions, goal), []
    for views in film:
        present = rng.random((num_envs, len(views.names))) < 0.7
        progress, memory = net.advance(memory, Views(names=views.names, frames=views.frames, present=present))
        curve.append(progress)
    return curve


def random_views(net: ProgressNet, rng: np.random.Generator, num_envs: int) -> Views:
    """Noise at the size that the model takes, in all its views."""
    names = net.config.views
    shape = (num_envs, len(names), *net.config.encoder.image_size, 3)
    return Views(names=names, frames=rng.integers(0, 256, shape, np.uint8))
