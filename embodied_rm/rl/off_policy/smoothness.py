"""Smoothness of critics and policies: how much they change between a state and states near it.

Source: Wen et al., arXiv 2309.16973 ("RO2O"): when learning goes online, states differ slightly from the recorded ones,
and a critic or policy that changes much between them loses what it learned.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SMOOTHNESS_SAMPLES = 4
"""States near each state, of which the one with the largest change counts."""


def largest_change(
    change: Callable[[Tensor], Tensor], observation: Tensor, radius: float, generator: torch.Generator
) -> Tensor:
    """Return the largest change between each state and states near it.

    Args:
        change: Function of B states [B, D] near `observation`; returns how much each differs from it, [B], >= 0.
        observation: Normalized states, [B, D].
        radius: Largest distance along each axis, in standard deviations.
        generator: Draws the states near them, uniformly.

    Returns:
        The changes [B], with the gradient of the state where it is largest.
    """
    uniform = torch.rand((SMOOTHNESS_SAMPLES, *observation.shape), generator=generator)
    nearby = observation + radius * (2 * uniform - 1)
    with torch.no_grad():
        worst = torch.stack([change(states) for states in nearby]).argmax(0)
    return change(nearby[worst, torch.arange(len(observation))])
