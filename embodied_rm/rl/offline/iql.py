"""Implicit Q-learning: the value of the best recorded actions, and a policy that imitates them.

No action that was not recorded is ever valued. Source: Kostrikov, Nair and Levine, arXiv 2110.06169.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.offline.critics import StateValue, advantage_weights, expectile_loss
from embodied_rm.rl.offline.offline_config import OfflineConfig
from embodied_rm.rl.offline.offline_learner import OfflineLearner
from embodied_rm.rl.offline.transitions import OfflineTransitions


class IQL(OfflineLearner):
    """Implicit Q-learning with advantage-weighted regression of the policy's mean."""

    def __init__(self, policy: GaussianPolicy, config: OfflineConfig) -> None:
        self.value = StateValue(policy.normalizer, config.critic_hidden_sizes)
        super().__init__(policy, config)

    def trained_modules(self) -> dict[str, nn.Module]:
        """Return the value, the Q-functions and the network of the policy's mean."""
        return {"value": self.value, "critics": self.critics, "policy": self.policy.mlp}

    def next_value(self, normalized_obs: Tensor) -> Tensor:
        """Return the expectile value of states."""
        values: Tensor = self.value(normalized_obs)
        return values

    def losses(self, batch: OfflineTransitions, step: int) -> dict[str, Tensor]:
        """Return the losses of equations 5, 6 and 7."""
        config, observation = self.config, self.policy.normalizer(batch.observation)
        target = self.targets(batch)
        advantage = self.target_q(observation, batch.action) - self.value(observation)
        weight = advantage_weights(advantage.detach(), config.inverse_temperature, config.max_weight)
        error = (self.policy.mlp(observation) - batch.action).square().sum(-1)
        return {
            "value": expectile_loss(advantage, config.expectile),
            "critics": (self.critics(observation, batch.action) - target).square().mean(1).sum(),
            "policy": (weight * error).sum() / weight.sum(),
        }

    @torch.no_grad()
    def diagnose(self, batch: OfflineTransitions) -> dict[str, float]:
        """Return the diagnostics of every learner, and the mean value of the states."""
        value = self.value(self.policy.normalizer(batch.observation))
        return {**super().diagnose(batch), "value": float(value.mean())}
