"""Critics of state and action: an ensemble of Q-functions and a value function, and the losses of offline RL."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from embodied_rm.rl.learner.ensemble_mlp import EnsembleMLP
from embodied_rm.rl.learner.policy import ObservationNormalizer


class QEnsemble(nn.Module):
    """Q-functions [E, B] of observations [B, D] and actions [B, A]."""

    def __init__(self, normalizer: ObservationNormalizer, action_dim: int, hidden: Sequence[int], members: int) -> None:
        super().__init__()
        size = len(normalizer.mean) + normalizer.length_dims
        self.mlp = EnsembleMLP(members, size + action_dim, hidden)

    def forward(self, normalized_obs: Tensor, action: Tensor) -> Tensor:
        return self.mlp.values(torch.cat([normalized_obs, action], dim=-1))


class StateValue(nn.Module):
    """Values [B] of observations [B, D]."""

    def __init__(self, normalizer: ObservationNormalizer, hidden: Sequence[int]) -> None:
        super().__init__()
        self.mlp = EnsembleMLP(1, len(normalizer.mean) + normalizer.length_dims, hidden)

    def forward(self, normalized_obs: Tensor) -> Tensor:
        return self.mlp.values(normalized_obs)[0]


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Return |expectile - 1(error < 0)| error^2, averaged; error = target - value.

    Its minimum is the mean of the targets for 1/2, and tends to their maximum for 1. Source: Kostrikov et al., arXiv
    2110.06169 ("IQL"), equation 5.
    """
    weight = torch.where(error < 0, 1 - expectile, expectile)
    return (weight * error.square()).mean()


def advantage_weights(advantage: Tensor, inverse_temperature: float | Tensor, max_weight: float) -> Tensor:
    """Return exp(inverse_temperature A / std(A)), at most `max_weight`.

    As equation 7 of IQL; the division makes the temperature independent of the scale of the rewards.
    """
    scale = advantage.std(correction=0).clamp_min(1e-6)
    return torch.exp(inverse_temperature * advantage / scale).clamp(max=max_weight)


def td_target(reward: Tensor, terminated: Tensor, next_value: Tensor, gamma: float) -> Tensor:
    """Return r + gamma V(s'), without the second term where the episode ended."""
    return reward + gamma * torch.where(terminated, 0.0, next_value)


def squared_excess(action: Tensor) -> Tensor:
    """Return the squared distance [B] of actions [B, A] from [-1, 1], where critics have no gradient."""
    return (action - action.clamp(-1, 1)).square().sum(-1)


@torch.no_grad()
def update_target(target: nn.Module, source: nn.Module, rate: float) -> None:
    """Move the weights of a target network towards those of its source, by the share `rate`."""
    for old, new in zip(target.parameters(), source.parameters(), strict=True):
        old.lerp_(new, rate)
