"""Gradients of the learner's small networks, and of what PPO maximises, written out.

Autograd's bookkeeping costs several times what these networks compute. `tests/rl/test_gradients.py` holds both against
each other.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from embodied_rm.rl.learner.policy import LOG_STD_RANGE, gaussian_kl, log_prob
from embodied_rm.rl.learner.tanh import tanh


class Slope(NamedTuple):
    """A scalar that depends on a Gaussian policy, and how it changes with it."""

    value: Tensor
    mean: Tensor
    """[B, A]: its derivative by the mean action in each state."""
    log_std: Tensor
    """[A]: by the logarithm of the exploration noise."""


class Acted(NamedTuple):
    """What was done in B states, and what came of it."""

    action: Tensor
    """[B, A]."""
    log_prob: Tensor
    """[B], under the policy that acted."""
    advantage: Tensor
    """[B]."""

    def rows(self, index: Tensor) -> Acted:
        """Those of some of the states."""
        return Acted(*(column[index] for column in self))


def forward(network: nn.Sequential, inputs: Tensor) -> list[Tensor]:
    """What goes into each linear layer of a tanh network (`policy.mlp`), and last what comes out."""
    *hidden, last = _linears(network)
    kept = [inputs]
    for linear in hidden:
        kept.append(tanh(nn.functional.linear(kept[-1], linear.weight, linear.bias)))
    return [*kept, nn.functional.linear(kept[-1], last.weight, last.bias)]


def backward(network: nn.Sequential, kept: list[Tensor], slope: Tensor) -> None:
    """Write the gradients of the weights where they lie, given that of the output; `kept`: what `forward` gave."""
    linears = _linears(network)
    for i in reversed(range(len(linears))):
        weight, bias = linears[i].weight, linears[i].bias
        assert weight.grad is not None and bias.grad is not None
        torch.mm(slope.T, kept[i], out=weight.grad)
        torch.sum(slope, dim=0, out=bias.grad)
        if i:
            slope = slope @ weight
            slope.addcmul_(slope, kept[i].square(), value=-1)


def clipped_gain_slope(acted: Acted, mean: Tensor, log_std: Tensor, clip: float) -> Slope:
    """Of the clipped surrogate objective (arXiv 1707.06347, eq. 7), summed over the states, in which the policy's mean
    action is `mean` [B, A] now.

    An action whose ratio is past the clip in the direction of its advantage counts no more.
    """
    ratio = torch.exp(log_prob(acted.action, mean, log_std) - acted.log_prob)
    free, clipped = ratio * acted.advantage, ratio.clamp(1 - clip, 1 + clip) * acted.advantage
    counts = torch.where(free <= clipped, free, 0.0)[:, None]
    scaled = (acted.action - mean) * torch.exp(-log_std)
    return Slope(
        torch.minimum(free, clipped).sum(),
        counts * scaled * torch.exp(-log_std),
        (counts * (scaled.square() - 1)).sum(dim=0),
    )


def divergence_slope(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Slope:
    """Of the KL divergence of a Gaussian from another one, summed over the rows."""
    return Slope(
        gaussian_kl(mean, log_std, other_mean, other_log_std).sum(),
        (mean - other_mean) * torch.exp(-2 * other_log_std),
        len(mean) * (torch.exp(2 * (log_std - other_log_std)) - 1),
    )


def entropy_slope(mean: Tensor, log_std: Tensor) -> Slope:
    """Of the differential entropy, in nats up to its constant, summed over the states."""
    count = len(mean)
    return Slope(count * log_std.sum(), torch.zeros_like(mean), torch.full_like(log_std, count))


def summed(*terms: tuple[float, Slope]) -> Slope:
    """Of a weighted sum of one or more, added up in their order."""
    (weight, slope), *rest = terms
    total = Slope(*(weight * part for part in slope))
    for weight, slope in rest:
        total = Slope(*(whole + weight * part for whole, part in zip(total, slope, strict=True)))
    return total


def through_clamp(log_std: Tensor, slope: Tensor) -> Tensor:
    """The derivative by a parameter of the one by its value clamped to `LOG_STD_RANGE`."""
    low, high = LOG_STD_RANGE
    return torch.where((log_std >= low) & (log_std <= high), slope, 0.0)


def _linears(network: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in network if isinstance(layer, nn.Linear)]
