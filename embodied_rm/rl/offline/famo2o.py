"""A family of policies between cloning and improvement, and a balance between them that depends on the state.

Source: Wang et al., Train Once, Get a Family: State-Adaptive Balances for Offline-to-Online Reinforcement Learning
(arXiv 2310.17966), over implicit Q-learning. A refinement takes one policy, so the selected actions are distilled.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from embodied_rm.rl.learner.policy import GaussianPolicy, mlp
from embodied_rm.rl.offline.critics import advantage_weights, expectile_loss, squared_excess
from embodied_rm.rl.offline.iql import IQL
from embodied_rm.rl.offline.offline_config import OfflineConfig
from embodied_rm.rl.offline.transitions import OfflineTransitions


class FamO2O(IQL):
    """Implicit Q-learning of a family of policies pi(a | s, b), b in [0, 1], and of a balance b(s)."""

    def __init__(self, policy: GaussianPolicy, config: OfflineConfig) -> None:
        spec = policy.spec
        size = spec.obs_dim + spec.length_dims
        self.family = mlp(size + 1, spec.hidden, spec.action_dim, output_gain=0.01)
        self.balance_model = mlp(size, spec.hidden, 1, output_gain=0.01)
        super().__init__(policy, config)

    def trained_modules(self) -> dict[str, nn.Module]:
        """Return the modules of implicit Q-learning, the family and the balance."""
        return {**super().trained_modules(), "family": self.family, "balance": self.balance_model}

    def losses(self, batch: OfflineTransitions, step: int) -> dict[str, Tensor]:
        """Return the losses of implicit Q-learning, with the family's policies instead of one, and of the balance.

        A policy with the balance b imitates actions by exp(2 b inverse_temperature A): b = 0 clones, b = 1/2 is that of
        implicit Q-learning. The balance maximizes the value of the family's actions.
        """
        config, observation = self.config, self.policy.normalizer(batch.observation)
        target = self.targets(batch)
        advantage = self.target_q(observation, batch.action) - self.value(observation)
        drawn = torch.rand(len(observation), generator=self.generator)
        weight = family_weights(advantage.detach(), 2 * drawn * config.inverse_temperature, config.max_weight)
        error = (self.family_action(observation, drawn) - batch.action).square().sum(-1)
        return {
            "value": expectile_loss(advantage, config.expectile),
            "critics": (self.critics(observation, batch.action) - target).square().mean(1).sum(),
            "family": (weight * error).mean(),
            "balance": self._balance_loss(observation),
            "policy": mse_loss(self.policy.mlp(observation), self.balanced_action(observation).detach()),
        }

    def family_action(self, normalized_obs: Tensor, balance: Tensor) -> Tensor:
        """Return the actions [B, A] of the family's policies with balances [B]."""
        actions: Tensor = self.family(torch.cat([normalized_obs, balance[:, None]], dim=-1))
        return actions

    def balance(self, normalized_obs: Tensor) -> Tensor:
        """Return the balance [B] of states, in [0, 1]."""
        return torch.sigmoid(self.balance_model(normalized_obs).squeeze(-1))

    def balanced_action(self, normalized_obs: Tensor) -> Tensor:
        """Return the actions [B, A] of the family's policies that the balance selects."""
        return self.family_action(normalized_obs, self.balance(normalized_obs))

    def _balance_loss(self, normalized_obs: Tensor) -> Tensor:
        """Return minus the value of the selected actions; only the balance has a gradient."""
        frozen = (self.critics, self.family)
        for module in frozen:
            module.requires_grad_(False)
        action = self.balanced_action(normalized_obs)
        loss = (squared_excess(action) - self.critics(normalized_obs, action.clamp(-1, 1)).amin(0)).mean()
        for module in frozen:
            module.requires_grad_(True)
        return loss

    @torch.no_grad()
    def diagnose(self, batch: OfflineTransitions) -> dict[str, float]:
        """Return the diagnostics of implicit Q-learning, and the mean balance of the states."""
        balance = self.balance(self.policy.normalizer(batch.observation))
        return {**super().diagnose(batch), "balance": float(balance.mean())}


def family_weights(advantage: Tensor, inverse_temperature: Tensor, max_weight: float) -> Tensor:
    """Return the weights [B] of actions with advantages [B], each by its inverse temperature [B].

    They are divided by the mean weight that all advantages have by the same inverse temperature. Else the policies that
    are nearest to cloning, whose weights are smaller, would not be trained.
    """
    weights = advantage_weights(advantage[None], inverse_temperature[:, None], max_weight)
    return weights.diagonal() / weights.mean(1)
