"""In-context one-shot learning: a demonstration as a way along which the present is found (pure torch).

The present is one of the demonstration's moments, and moves along them as time goes on: a hidden Markov model whose
observations are distances of states. Its forward filter looks at the past only. Shapes: N environments, R moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.labels.hops import true_progress
from embodied_rm.models.base import Reference
from embodied_rm.types import Episode, Views

MOMENTS = 32
"""Moments of a demonstration that are kept, evenly over its time."""
LOST = 0.1
"""Probability of being anywhere on the way, wherever one was before."""
MISSED = 0.01
"""What a moment that was left out counts among those that were passed, in their geometric mean."""
LENIENCY = 2.0
"""How much farther from the end of the demonstration than from other moments the end of an episode may be."""
TEMPERATURE = 1.0
"""Distance of states, in squared steps of the demonstration, at which a moment is e times less likely."""


def reference_of(demonstrations: list[Episode]) -> Reference:
    """One demonstration an environment, all with the same views, as `begin` takes them.

    Raises `DataError` when one has neither annotated steps nor progress.
    """
    moments = [np.linspace(0, len(e) - 1, MOMENTS).round().astype(np.int64) for e in demonstrations]
    names = tuple(demonstrations[0].views)
    frames = [
        np.stack([e.views[name][at] for name in names], axis=1) for e, at in zip(demonstrations, moments, strict=True)
    ]
    return Reference(
        views=Views(names=names, frames=np.concatenate(frames)),
        instructions=tuple(e.instruction for e in demonstrations),
        progress=np.stack([true_progress(e)[at] for e, at in zip(demonstrations, moments, strict=True)]),
    )


@dataclass(frozen=True, kw_only=True)
class Located:
    """Where on the demonstration's way the present is."""

    belief: Tensor
    """Probability of each moment, float [N, R]."""
    passed: Tensor
    """The most that was ever believed of each moment and its two neighbours, float [N, R]."""
    potential: Tensor
    """Expected progress, float [N]."""
    done: Tensor
    """How much, in [0, 1], speaks for the task being done, float [N]: that the end was reached, that it looks as it
    did, that every moment was passed on the way; their geometric mean."""


def locate(belief: Tensor, passed: Tensor, moments: Tensor, progress: Tensor, state: Tensor) -> Located:
    """One step of the forward filter, from what was believed to that after `state` [N, width] has been seen.

    `moments`: states of the demonstration [N, R, width], whose `progress` is [N, R].
    """
    expected = belief @ transition(belief.shape[1]).to(belief)
    far = distance(moments, state[:, None]) / (TEMPERATURE * scale(moments))[:, None]
    belief = torch.softmax(expected.log() - far, dim=1)
    passed = torch.maximum(passed, around(belief))
    potential = (belief * progress).sum(dim=1)
    whole = (passed + MISSED).log().mean(dim=1).exp().clamp(max=1)
    done = (potential * torch.exp(-far[:, -1] / LENIENCY) * whole) ** (1 / 3)
    return Located(belief=belief, passed=passed, potential=potential, done=done)


def around(belief: Tensor) -> Tensor:
    """Probability [N, R] of each moment and its two neighbours."""
    return nn.functional.pad(belief, (1, 1)).unfold(1, 3, 1).sum(dim=2)


def transition(moments: int) -> Tensor:
    """Probability [R, R] of each moment after each, the farther the less likely.

    Forwards and backwards alike: with a liking for forwards the curve rises by itself, and order is no merit then.
    """
    order = torch.arange(moments)
    near = torch.exp(-(order[None] - order[:, None]).abs().float())
    return (1 - LOST) * near / near.sum(dim=1, keepdim=True) + LOST / moments


def distance(p: Tensor, q: Tensor) -> Tensor:
    """Mean squared difference of states [..., width]; they broadcast."""
    return (p - q).square().mean(dim=-1)


def scale(moments: Tensor) -> Tensor:
    """The typical step of each demonstration, [N]: median distance of moments that follow each other and differ."""
    step = distance(moments[:, 1:], moments[:, :-1])
    typical = torch.where(step > 0, step, torch.nan).nanmedian(dim=1).values
    return torch.nan_to_num(typical, nan=1.0)
