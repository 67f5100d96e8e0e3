"""Gradients of the learner's small networks and of the PPO objective, without autograd.

The overhead of autograd is several times the computation of these networks. `tests/rl/test_gradients.py` compares both.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from embodied_rm.rl.learner.policy import LOG_STD_RANGE, gaussian_kl, log_prob, tanh


class PolicyGrad(NamedTuple):
    """A scalar function of a Gaussian policy, and its derivatives."""

    value: Tensor
    mean: Tensor  # [B, A]: derivative with respect to the mean action in each state
    log_std: Tensor  # [A]: derivative with respect to the log standard deviation


class ActionBatch(NamedTuple):
    """Actions in B states, and their advantages."""

    action: Tensor  # [B, A]
    log_prob: Tensor  # [B], under the policy that acted
    advantage: Tensor  # [B]

    def select(self, index: Tensor) -> ActionBatch:
        """Return the rows of some states."""
        return ActionBatch(*(column[index] for column in self))


def forward(network: nn.Sequential, inputs: Tensor) -> list[Tensor]:
    """Return the input of each linear layer of a tanh network (`policy.mlp`), and last its output."""
    *hidden, last = _linear_layers(network)
    activations = [inputs]
    for linear in hidden:
        activations.append(tanh(nn.functional.linear(activations[-1], linear.weight, linear.bias)))
    return [*activations, nn.functional.linear(activations[-1], last.weight, last.bias)]


def backward(network: nn.Sequential, activations: list[Tensor], grad: Tensor) -> None:
    """Write the gradients of the weights in place, from that of the output and the activations of `forward`."""
    linears = _linear_layers(network)
    for i in reversed(range(len(linears))):
        weight, bias = linears[i].weight, linears[i].bias
        assert weight.grad is not None and bias.grad is not None
        torch.mm(grad.T, activations[i], out=weight.grad)
        torch.sum(grad, dim=0, out=bias.grad)
        if i:
            grad = grad @ weight
            grad.addcmul_(grad, activations[i].square(), value=-1)


def clipped_surrogate_grad(actions: ActionBatch, mean: Tensor, log_std: Tensor, clip: float) -> PolicyGrad:
    """Return the clipped surrogate objective (arXiv 1707.06347, eq. 7), summed over the states, with its gradient.

    The gradient of an action is 0 if its ratio is past the clip in the direction of its advantage. Mean actions [B, A]
    and log standard deviation [A] are the current ones.
    """
    ratio = torch.exp(log_prob(actions.action, mean, log_std) - actions.log_prob)
    unclipped, clipped = ratio * actions.advantage, ratio.clamp(1 - clip, 1 + clip) * actions.advantage
    active = torch.where(unclipped <= clipped, unclipped, 0.0)[:, None]
    scaled = (actions.action - mean) * torch.exp(-log_std)
    return PolicyGrad(
        torch.minimum(unclipped, clipped).sum(),
        active * scaled * torch.exp(-log_std),
        (active * (scaled.square() - 1)).sum(dim=0),
    )


def kl_grad(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> PolicyGrad:
    """Return the KL divergence of a Gaussian from another one, summed over the rows, with its gradient."""
    return PolicyGrad(
        gaussian_kl(mean, log_std, other_mean, other_log_std).sum(),
        (mean - other_mean) * torch.exp(-2 * other_log_std),
        len(mean) * (torch.exp(2 * (log_std - other_log_std)) - 1),
    )


def entropy_grad(mean: Tensor, log_std: Tensor) -> PolicyGrad:
    """Return the differential entropy in nats up to its constant, summed over the states, with its gradient."""
    count = len(mean)
    return PolicyGrad(count * log_std.sum(), torch.zeros_like(mean), torch.full_like(log_std, count))


def weighted_sum(*terms: tuple[float, PolicyGrad]) -> PolicyGrad:
    """Return the weighted sum of one or more functions, in their order."""
    (weight, grad), *rest = terms
    total = PolicyGrad(*(weight * part for part in grad))
    for weight, grad in rest:
        total = PolicyGrad(*(accumulated + weight * part for accumulated, part in zip(total, grad, strict=True)))
    return total


def clamp_grad(log_std: Tensor, grad: Tensor) -> Tensor:
    """Return the derivative with respect to a parameter, from that of its value clamped to `LOG_STD_RANGE`."""
    low, high = LOG_STD_RANGE
    return torch.where((log_std >= low) & (log_std <= high), grad, 0.0)


def _linear_layers(network: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in network if isinstance(layer, nn.Linear)]
