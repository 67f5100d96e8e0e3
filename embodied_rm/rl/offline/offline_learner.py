"""What both offline learners share: the policy, Q-functions with their target, optimizers, and diagnostics."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import isfinite

import torch
from torch import Tensor, nn

from embodied_rm.checkpoint_io import add_prefix, load_into, strip_prefix
from embodied_rm.errors import UserError
from embodied_rm.rl.learner.optimizer import FlatAdam
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.offline.critics import QEnsemble, td_target, update_target
from embodied_rm.rl.offline.offline_config import OfflineConfig
from embodied_rm.rl.offline.transitions import OfflineTransitions

MAX_GRAD_NORM = 10.0


class OfflineLearner(ABC):
    """A policy that learns from batches of recorded transitions."""

    def __init__(self, policy: GaussianPolicy, config: OfflineConfig) -> None:
        self.policy, self.config = policy, config
        self.critics = QEnsemble(
            policy.normalizer, policy.spec.action_dim, config.critic_hidden_sizes, config.num_critics
        )
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.optimizers = {name: self._make_optimizer(module) for name, module in self.trained_modules().items()}

    @abstractmethod
    def trained_modules(self) -> dict[str, nn.Module]:
        """Return name -> module with an optimizer of its own."""

    @abstractmethod
    def losses(self, batch: OfflineTransitions, step: int) -> dict[str, Tensor]:
        """Return name of a trained module -> its loss."""

    @abstractmethod
    def next_value(self, normalized_obs: Tensor) -> Tensor:
        """Return the value [B] of the next states, of which targets are made."""

    def update(self, batch: OfflineTransitions, step: int) -> dict[str, float]:
        """Take one step of every optimizer; return the losses.

        Raises:
            UserError: A loss or gradient is not finite. No step is taken then.
        """
        losses = self.losses(batch, step)
        for optimizer in self.optimizers.values():
            optimizer.gradient.zero_()
        for loss in losses.values():  # all gradients first: a step changes weights that other losses still need
            loss.backward()
        norms = {name: float(optimizer.gradient.norm()) for name, optimizer in self.optimizers.items()}
        values = {name: float(loss.detach()) for name, loss in losses.items()}
        for name, value in values.items():
            if not (isfinite(value) and isfinite(norms[name])):
                raise UserError(
                    f"the loss of {name} became {value} at step {step}: check rewards and observations for "
                    f"non-finite numbers, or lower learning_rate={self.config.learning_rate}"
                )
        for name, optimizer in self.optimizers.items():
            optimizer.step(norms[name])
        update_target(self.target_critics, self.critics, self.config.target_update_rate)
        return values

    @torch.no_grad()
    def diagnose(self, batch: OfflineTransitions) -> dict[str, float]:
        """Return error and values on recorded transitions.

        A rising `td_error` of unseen episodes means overfitting. Values `q_policy` of the policy's actions far above
        `q_data` of the recorded ones mean overestimation (Kumar et al., arXiv 2109.10813).
        """
        observation = self.policy.normalizer(batch.observation)
        target = self.targets(batch)
        values = self.critics(observation, batch.action)
        action = self.policy.mlp(observation)
        return {
            "td_error": float((values - target).square().mean().sqrt()),
            "q_data": float(values.mean()),
            "q_policy": float(self.critics(observation, action.clamp(-1, 1)).mean()),
            "action_mse": float((action - batch.action).square().mean()),
        }

    @torch.no_grad()
    def targets(self, batch: OfflineTransitions) -> Tensor:
        """Return the targets [B] of the Q-functions."""
        next_value = self.next_value(self.policy.normalizer(batch.next_observation))
        return td_target(batch.reward, batch.terminated, next_value, self.config.gamma)

    @torch.no_grad()
    def target_q(self, normalized_obs: Tensor, action: Tensor) -> Tensor:
        """Return the smallest value [B] of the target networks."""
        return self.target_critics(normalized_obs, action).amin(0)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the next update depends on, as named tensors."""
        tensors = {"generator": self.generator.get_state()}
        for name, module in self._stored_modules().items():
            tensors |= add_prefix(name, module.state_dict())
        for name, optimizer in self.optimizers.items():
            tensors |= add_prefix(f"{name}_optimizer", optimizer.state_dict())
        return tensors

    def load_state_dict(self, tensors: Mapping[str, Tensor], source: object) -> None:
        """Restore the state of `state_dict`; raise `CheckpointError` with the name of `source` if it does not fit."""
        for name, module in self._stored_modules().items():
            load_into(module, strip_prefix(name, tensors), str(source))
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(strip_prefix(f"{name}_optimizer", tensors), source)
        self.generator.set_state(tensors["generator"])

    def _stored_modules(self) -> dict[str, nn.Module]:
        return {**self.trained_modules(), "target_critics": self.target_critics}

    def _make_optimizer(self, module: nn.Module) -> FlatAdam:
        return FlatAdam(module, self.config.learning_rate, MAX_GRAD_NORM)
