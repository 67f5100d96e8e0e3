"""Proximal policy optimization (Schulman et al., arXiv 1707.06347) that starts from an imitated policy.

This start needs features that libraries lack: iterations that train the critic alone, penalties on the divergence from
the imitated policy and the demonstrations, and separate optimizers, so that the actor can pause.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import e, log, pi
from statistics import fmean
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, load_into, strip_prefix
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.rl.learner.buffer import PPOBatch
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.gradients import (
    ActionBatch,
    backward,
    clamp_grad,
    clipped_surrogate_grad,
    entropy_grad,
    forward,
    kl_grad,
    weighted_sum,
)
from embodied_rm.rl.learner.optimizer import FlatAdam, take_finite_step
from embodied_rm.rl.learner.policy import GaussianPolicy, ValueCritic, gaussian_kl
from embodied_rm.threads import count_cores, run_concurrently, torch_threads

T = TypeVar("T")
U = TypeVar("U")
LossAndGradNorm = tuple[float, float]  # (loss, norm of its gradient)
KL_SAMPLE_SIZE = 1024  # largest number of states in which the KL divergence is measured after each epoch
MIN_STATES_FOR_THREADS = 128
"""Smallest minibatch for which actor and critic are trained concurrently. With fewer states, the interpreter
takes most of the time: concurrent training was a sixth slower with 60 states and a fifth faster with 240."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Proximal policy optimization. `gamma` is the only discount: shaping uses it too."""

    gamma: float = 0.98
    gae_lambda: float = 0.85
    actor_learning_rate: float = 2e-3
    """Learning rate for an exploration noise of 1. It is multiplied by the initial noise, so that the divergence per
    update does not depend on it."""
    critic_learning_rate: float = 1e-3
    epochs: int = 8
    num_minibatches: int = 16  # minibatches per rollout, each one optimizer step per epoch
    clip_range: float = 0.3
    entropy_coef: float = 0.0
    target_kl: float = 0.2
    """KL divergence (nats, mean over states) from which on the actor pauses for the remaining epochs."""
    max_grad_norm: float = 0.5

    def __post_init__(self) -> None:
        for name in ("gamma", "gae_lambda"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        for name in vars(self):
            if name != "entropy_coef" and not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """Statistics of one update; losses and gradient norms are means over its minibatches."""

    kl: float  # mean KL divergence of the policy after the update from the one that acted, in nats
    bc_kl: float  # mean KL divergence of the policy from the imitated policy, in nats
    critic_loss: float
    entropy: float  # differential entropy of the policy after the update, in nats, summed over the action dimensions
    explained_variance: float
    """Explained variance of the returns by the critic before the update; 0 if they have no variance."""
    advantage_std: float  # see `PPOBatch`
    actor_grad_norm: float  # norm of the gradient before clipping; 0 if the actor paused
    critic_grad_norm: float  # norm of the gradient before clipping
    actor_epochs: int  # epochs in which the actor was trained


class GaussianBatch(NamedTuple):
    """Action distributions of a policy in all states of a batch."""

    mean: Tensor
    log_std: Tensor

    @classmethod
    def from_policy(cls, policy: GaussianPolicy, normalized_obs: Tensor) -> GaussianBatch:
        """Return the distributions in states that the policy's normalizer normalized."""
        return cls(policy.mlp(normalized_obs), policy.clamped_log_std)

    def select(self, index: Tensor) -> GaussianBatch:
        """Return the distributions in some states."""
        return GaussianBatch(self.mean[index], self.log_std)

    def mean_kl(self, other: GaussianBatch) -> float:
        """Return the mean KL divergence from `other`, in nats."""
        return float(gaussian_kl(self.mean, self.log_std, other.mean, other.log_std).mean())


class KLPenalties(NamedTuple):
    """Penalties on the divergence of the actor from references."""

    reference: GaussianBatch  # the imitated policy in some states
    bc_kl_coef: float
    imitation_coef: float

    def select(self, index: Tensor) -> KLPenalties:
        """Return the penalties in some states."""
        return self._replace(reference=self.reference.select(index))


class PPO:
    """Actor and critic, on one device, with their optimizers, the imitated policy and the demonstrations.

    The policy at the start is the imitated one. The generator is on the CPU, so that runs on all devices draw the same
    numbers. All processes have the same arguments and batches, and each computes a part.
    """

    def __init__(
        self,
        policy: GaussianPolicy,
        critic: ValueCritic,
        config: PPOConfig,
        generator: torch.Generator,
        demonstrations: DemoPairs | None = None,
        dist: DistContext = SINGLE_PROCESS,
    ) -> None:
        self.policy, self.critic, self.config, self.generator = policy, critic, config, generator
        self.demonstrations, self.dist = demonstrations, dist
        self.reference = copy.deepcopy(policy).requires_grad_(False)
        actor_learning_rate = config.actor_learning_rate * float(policy.log_std.detach().exp().mean())
        self.actor_optimizer = FlatAdam(policy, actor_learning_rate, config.max_grad_norm)
        self.critic_optimizer = FlatAdam(critic, config.critic_learning_rate, config.max_grad_norm)

    @torch_threads(1)
    @torch.inference_mode()
    def update(
        self, batch: PPOBatch, *, train_actor: bool = True, bc_kl_coef: float = 0.0, imitation_coef: float = 0.0
    ) -> UpdateStats:
        """Train the critic, and the actor if `train_actor`, on one batch.

        The coefficients are weights of the KL divergence from the imitated policy and from the demonstrations. A
        non-finite loss or gradient raises `UserError`; that optimizer step is not taken.
        """
        normalized_obs = self.policy.normalizer(batch.observation)  # the imitated policy has the same normalizer
        reference = GaussianBatch.from_policy(self.reference, normalized_obs)
        before = GaussianBatch.from_policy(self.policy, normalized_obs)
        explained = explained_variance(self.critic, batch)
        actions = ActionBatch(batch.action, batch.log_prob, batch.advantage)
        penalties = KLPenalties(reference, bc_kl_coef, imitation_coef)
        epochs = [self._minibatches(len(batch)) for _ in range(self.config.epochs)]
        critic_steps, actor_steps = self._run_both(
            len(epochs[0][0]),
            lambda: self._fit_critic(
                epochs, self.critic.inputs(batch.critic_observation, batch.potential), batch.target
            ),
            lambda: self._fit_actor(epochs if train_actor else [], normalized_obs, actions, penalties, before),
        )
        after = GaussianBatch.from_policy(self.policy, normalized_obs)
        return UpdateStats(
            kl=after.mean_kl(before),
            bc_kl=after.mean_kl(reference),
            critic_loss=fmean(loss for loss, _ in critic_steps),
            entropy=float(after.log_std.sum()) + after.log_std.shape[-1] * 0.5 * log(2 * pi * e),
            explained_variance=explained,
            advantage_std=batch.advantage_std,
            actor_grad_norm=fmean(norm for epoch in actor_steps for _, norm in epoch) if actor_steps else 0.0,
            critic_grad_norm=fmean(norm for _, norm in critic_steps),
            actor_epochs=len(actor_steps),
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the next update depends on, as named tensors."""
        names = ("policy", "critic", "reference", "actor_optimizer", "critic_optimizer")
        tensors: dict[str, Tensor] = {}
        for name in names:
            tensors |= add_prefix(name, getattr(self, name).state_dict())
        return {**tensors, "generator": self.generator.get_state()}

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Restore the state of `state_dict`; raise `CheckpointError` with the name of `source` if it does not fit."""
        for name in ("policy", "critic", "reference"):
            load_into(getattr(self, name), strip_prefix(name, tensors), str(source))
        for name in ("actor_optimizer", "critic_optimizer"):
            getattr(self, name).load_state_dict(strip_prefix(name, tensors), source)
        self.generator.set_state(tensors["generator"])

    def _minibatches(self, size: int) -> tuple[Tensor, ...]:
        order = torch.randperm(size, generator=self.generator).to(self.policy.device)
        # Equal parts: a small remainder would be a full optimizer step from few transitions.
        return order.tensor_split(self.dist.num_minibatches(self.config.num_minibatches, size))

    def _run_both(self, num_states: int, critic: Callable[[], T], actor: Callable[[], U]) -> tuple[T, U]:
        """Run both, and return both results; `num_states` is the size of a minibatch.

        They share no state that either changes, so they may run concurrently. With several processes they may not,
        because all processes must call the collective operations in the same order.
        """
        threaded = self.dist.world_size == 1 and num_states >= MIN_STATES_FOR_THREADS and count_cores() > 1
        return run_concurrently(critic, actor) if threaded else (critic(), actor())

    def _fit_critic(
        self, epochs: Sequence[tuple[Tensor, ...]], inputs: Tensor, target: Tensor
    ) -> list[LossAndGradNorm]:
        """Train the critic on inputs [B, D + 1] and targets [B]; `epochs` has the rows of each minibatch."""
        shards = [(self.dist.shard(rows), len(rows)) for rows in itertools.chain(*epochs)]
        return [self._step_critic(inputs[rows], target[rows], count) for rows, count in shards]

    def _fit_actor(
        self,
        epochs: Sequence[tuple[Tensor, ...]],
        normalized_obs: Tensor,
        actions: ActionBatch,
        penalties: KLPenalties,
        before: GaussianBatch,
    ) -> list[list[LossAndGradNorm]]:
        """Train the actor until the policy has diverged from `before`, and return the steps of each epoch."""
        steps: list[list[LossAndGradNorm]] = []
        for epoch in epochs:
            shards = [(self.dist.shard(rows), len(rows)) for rows in epoch]
            args = ((normalized_obs[rows], actions.select(rows), n, penalties.select(rows)) for rows, n in shards)
            steps.append([self._step_actor(*part) for part in args])
            sample = torch.cat(epoch)[:KL_SAMPLE_SIZE]
            kl = GaussianBatch.from_policy(self.policy, normalized_obs[sample]).mean_kl(before.select(sample))
            if self._all_reduce_mean(kl) >= self.config.target_kl:
                break
        return steps

    def _all_reduce_mean(self, value: float) -> float:
        """Return the mean over all processes, so that rounding differences do not make them diverge."""
        mean = torch.tensor([value / self.dist.world_size], device=self.policy.device)
        self.dist.all_reduce([mean])
        return float(mean)

    def _step_critic(self, inputs: Tensor, target: Tensor, count: int, weight: Tensor | float = 1.0) -> LossAndGradNorm:
        """Step the critic on this process's part of a minibatch of `count`.

        The part has inputs [b, D + 1], targets [b], and the weights [b, 1] of their errors.
        """
        activations = forward(self.critic.mlp, inputs)
        error = activations[-1] - target[:, None]
        backward(self.critic.mlp, activations, 2 / count * weight * error)
        return self._step((weight * error.square()).sum() / count, self.critic_optimizer, "critic")

    def _step_actor(
        self, normalized_obs: Tensor, actions: ActionBatch, count: int, penalties: KLPenalties
    ) -> LossAndGradNorm:
        """Step the actor on this process's part, observations [b, D], of a minibatch of `count`."""
        demo_obs, demo_action = normalized_obs[:0], actions.action[:0]
        if penalties.imitation_coef:
            demo_obs, demo_action = self._sample_demonstrations(count)
        activations = forward(self.policy.mlp, torch.cat([normalized_obs, demo_obs]))
        mean, demo_mean = activations[-1].split([len(normalized_obs), len(demo_obs)])
        log_std = self.policy.clamped_log_std
        terms = [(-1.0, clipped_surrogate_grad(actions, mean, log_std, self.config.clip_range))]
        if penalties.bc_kl_coef:
            terms.append((penalties.bc_kl_coef, kl_grad(mean, log_std, *penalties.reference)))
        if self.config.entropy_coef:
            terms.append((-self.config.entropy_coef, entropy_grad(mean, log_std)))
        loss, mean_grad, log_std_grad = weighted_sum(*terms)
        if penalties.imitation_coef:
            # KL divergence from the demonstrated actions with the current noise: demonstrations have none of their own.
            demo_kl = kl_grad(demo_mean, log_std, demo_action, log_std)
            loss = loss + penalties.imitation_coef * demo_kl.value
            mean_grad = torch.cat([mean_grad, penalties.imitation_coef * demo_kl.mean])
        backward(self.policy.mlp, activations, mean_grad / count)
        assert self.policy.log_std.grad is not None
        self.policy.log_std.grad.copy_(clamp_grad(self.policy.log_std, log_std_grad / count))
        return self._step(loss / count, self.actor_optimizer, "actor")

    def _sample_demonstrations(self, count: int) -> tuple[Tensor, Tensor]:
        """Return this process's part of `count` pairs of the demonstrations: normalized observations and actions."""
        assert self.demonstrations is not None
        sample = self.demonstrations.sample(count, self.generator)
        observation, action = (self.dist.shard(column).to(self.policy.device) for column in sample)
        return self.policy.normalizer(observation), action

    def _step(self, loss: Tensor, optimizer: FlatAdam, name: str) -> LossAndGradNorm:
        """Sum loss and gradient over all processes, and step the optimizer."""
        self.dist.all_reduce([loss, optimizer.gradient])
        loss_value, setting = loss.item(), f"{name}_learning_rate"
        return loss_value, take_finite_step(optimizer, loss_value, name, f"{setting}={getattr(self.config, setting)}")


@torch.no_grad()
def explained_variance(critic: ValueCritic, batch: PPOBatch) -> float:
    """Return 1 - Var(target - value) / Var(target), at most 1; 0 if all targets are equal."""
    error = batch.target - critic(batch.critic_observation, batch.potential)
    target_variance = float(batch.target.var(correction=0))
    return 1 - float(error.var(correction=0)) / target_variance if target_variance else 0.0
