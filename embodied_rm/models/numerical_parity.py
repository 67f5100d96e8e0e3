"""Largest differences between the predictions of two reward models on the same random images."""

import numpy as np

from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.types import Array, RewardOutput, Views

INSTRUCTIONS = ("lift the red cube", "open the drawer", "put the cup away")


def max_differences(first: ProgressNet, second: ProgressNet, num_envs: int = 8, num_steps: int = 6) -> dict[str, float]:
    """Largest difference of progress, success, uncertainty and OOD score, with goals and views that come and go.

    Values above 1 are compared relative to the first model; entries that are NaN in both models are skipped.
    """
    curves = [score_random_video(net, num_envs, num_steps) for net in (first, second)]
    pairs = list(zip(*curves, strict=True))
    names = ("progress", "success", "uncertainty", "ood")
    return {name: max(max_difference(getattr(a, name), getattr(b, name)) for a, b in pairs) for name in names}


def max_difference(first: Array, second: Array) -> float:
    """Largest difference; relative for values above 1. NaN must occur at the same entries."""
    assert (np.isnan(first) == np.isnan(second)).all()
    return float(np.nan_to_num(np.abs(first - second) / np.maximum(np.abs(first), 1)).max())


def score_random_video(net: ProgressNet, num_envs: int, num_steps: int) -> list[RewardOutput]:
    """Score a random video, the same for all models of one configuration."""
    rng = np.random.default_rng(0)
    first_views, goal, *video = (random_views(net, rng, num_envs) for _ in range(num_steps + 2))
    instructions = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(num_envs)]
    state = net.reset(first_views, instructions, goal)
    outputs = []
    for views in video:
        present = rng.random((num_envs, len(views.names))) < 0.7
        output, state = net.step(state, Views(names=views.names, frames=views.frames, present=present))
        outputs.append(output)
    return outputs


def random_views(net: ProgressNet, rng: np.random.Generator, num_envs: int) -> Views:
    """Random images in all views of a net, at its image size."""
    names = net.config.views
    shape = (num_envs, len(names), *net.config.encoder.image_size, 3)
    return Views(names=names, frames=rng.integers(0, 256, shape, np.uint8))
