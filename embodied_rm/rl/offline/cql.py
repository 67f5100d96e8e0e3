"""Conservative Q-learning: actions that were not recorded are valued low, and the policy maximizes the values.

Source: Kumar et al., arXiv 2006.04779, CQL(H) (equation 4), with a policy of fixed noise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from embodied_rm.rl.learner.policy import log_prob
from embodied_rm.rl.offline.critics import squared_excess
from embodied_rm.rl.offline.offline_learner import OfflineLearner
from embodied_rm.rl.offline.transitions import OfflineTransitions


class CQL(OfflineLearner):
    """Conservative Q-learning; actions are in [-1, 1]."""

    def trained_modules(self) -> dict[str, nn.Module]:
        """Return the Q-functions and the network of the policy's mean."""
        return {"critics": self.critics, "policy": self.policy.mlp}

    def next_value(self, normalized_obs: Tensor) -> Tensor:
        """Return the value of the policy's actions in states."""
        action, _ = self._sample_actions(normalized_obs)
        return self.target_q(normalized_obs, action.clamp(-1, 1))

    def losses(self, batch: OfflineTransitions, step: int) -> dict[str, Tensor]:
        """Return the errors of the Q-functions with the conservative penalty, and the loss of the policy."""
        config, observation = self.config, self.policy.normalizer(batch.observation)
        values = self.critics(observation, batch.action)
        error = (values - self.targets(batch)).square().mean(1).sum()
        penalty = (self._soft_maximum(observation) - values).mean(1).sum()
        mean = self.policy.mlp(observation)
        if step < config.bc_share * config.steps:
            policy_loss = (mean - batch.action).square().sum(-1).mean()
        else:
            action = mean + self._noise(mean)
            self.critics.requires_grad_(False)
            # The values have no gradient beyond the bounds of actions; the second term leads back.
            policy_loss = (squared_excess(mean) - self.critics(observation, action.clamp(-1, 1)).amin(0)).mean()
            self.critics.requires_grad_(True)
        return {"critics": error + config.conservative_coef * penalty, "policy": policy_loss}

    def _soft_maximum(self, normalized_obs: Tensor) -> Tensor:
        """Return the log of the integral of exp Q over all actions, estimated from uniform and the policy's; [E, B].

        Actions of the policy beyond the bounds are no part of the integral.
        """
        count = self.config.num_sampled_actions
        repeated = normalized_obs.repeat(count, 1)
        sampled, density = self._sample_actions(repeated)
        density = torch.where((sampled.abs() <= 1).all(-1), density, torch.inf)
        uniform = 2 * torch.rand(sampled.shape, generator=self.generator) - 1
        uniform_density = torch.full_like(density, -sampled.shape[1] * math.log(2))
        values = torch.stack([
            self.critics(repeated, action.clamp(-1, 1)) - log_density
            for action, log_density in ((sampled, density), (uniform, uniform_density))
        ])  # fmt: skip
        grouped = values.unflatten(-1, (count, -1)).transpose(0, 1).flatten(1, 2)  # [E, 2 count, B]
        return grouped.logsumexp(1) - math.log(2 * count)

    @torch.no_grad()
    def _sample_actions(self, normalized_obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions of the policy [B, A], which may be beyond the bounds, and their log densities [B]."""
        mean = self.policy.mlp(normalized_obs)
        action = mean + self._noise(mean)
        return action, log_prob(action, mean, self.policy.clamped_log_std)

    def _noise(self, mean: Tensor) -> Tensor:
        return self.policy.clamped_log_std.detach().exp() * torch.randn(mean.shape, generator=self.generator)
