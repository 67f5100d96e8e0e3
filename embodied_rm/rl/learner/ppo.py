"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347) that starts from an imitated policy.

What that start needs and libraries lack: iterations that train the critic alone, penalties for leaving the imitated
policy and the demonstrations, and separate optimizers, so that the actor can rest while the critic goes on.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import e, isfinite, log, pi
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
from embodied_rm.rl.learner.optimizer import FlatAdam
from embodied_rm.rl.learner.policy import GaussianPolicy, ValueCritic, gaussian_kl
from embodied_rm.rl.learner.threads import count_cores, run_concurrently, single_thread

T = TypeVar("T")
U = TypeVar("U")
LossAndGradNorm = tuple[float, float]
"""Loss, and norm of its gradient."""
KL_SAMPLE_SIZE = 1024
"""States, or all of fewer, in which it is measured after every epoch how far the policy moved."""
MIN_STATES_FOR_THREADS = 128
"""States in a minibatch from which on actor and critic learn side by side. With fewer, most of the time is Python's,
which serves one thread at a time: of 60, side by side was measured a sixth slower; of 240, a fifth faster."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Proximal policy optimisation. `gamma` is the only discount there is: shaping uses it too."""

    gamma: float = 0.98
    gae_lambda: float = 0.85
    actor_learning_rate: float = 2e-3
    """For an exploration noise of 1; scaled by the noise at the start, because a step of the mean counts relative
    to it: the same divergence an update, however carefully the policy explores."""
    critic_learning_rate: float = 1e-3
    epochs: int = 8
    num_minibatches: int = 16
    """Parts of a rollout, each of which makes one step of the optimizers in every epoch."""
    clip_range: float = 0.3
    entropy_coef: float = 0.0
    target_kl: float = 0.2
    """The actor rests for the remaining epochs once the policy moved further than this (nats, mean over states)."""
    max_grad_norm: float = 0.5

    def __post_init__(self) -> None:
        for name in ("gamma", "gae_lambda"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        for name in (
            "actor_learning_rate",
            "critic_learning_rate",
            "epochs",
            "num_minibatches",
            "clip_range",
            "target_kl",
            "max_grad_norm",
        ):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """What one update did; losses and gradients are means over its minibatches."""

    kl: float
    """Mean KL divergence of the policy after the update from the one that acted, in nats."""
    bc_kl: float
    """The same from the imitated policy."""
    critic_loss: float
    entropy: float
    """Of the policy after the update, differential, in nats: summed over the actions."""
    explained_variance: float
    """Share of the variance of the returns that the critic foresaw, before the update; 0 if there was none."""
    advantage_std: float
    """See `Batch`."""
    actor_grad_norm: float
    """Norm of the gradient before clipping, as in the next; 0 while the actor rests."""
    critic_grad_norm: float
    actor_epochs: int
    """Epochs in which the actor moved."""


class GaussianBatch(NamedTuple):
    """What a policy would do in every state of a batch, fixed at one moment."""

    mean: Tensor
    log_std: Tensor

    @classmethod
    def from_policy(cls, policy: GaussianPolicy, normalized_obs: Tensor) -> GaussianBatch:
        """`seen`: the states as the policy's normalizer gives them."""
        return cls(policy.mlp(normalized_obs), policy.clamped_log_std)

    def select(self, index: Tensor) -> GaussianBatch:
        """Those of some of the states."""
        return GaussianBatch(self.mean[index], self.log_std)

    def mean_kl(self, other: GaussianBatch) -> float:
        """Mean KL divergence from `other`, in nats."""
        return float(gaussian_kl(self.mean, self.log_std, other.mean, other.log_std).mean())


class KLPenalties(NamedTuple):
    """What the actor is held to, and how strongly."""

    reference: GaussianBatch
    """The imitated policy, in some states."""
    bc_kl_coef: float
    imitation_coef: float

    def select(self, index: Tensor) -> KLPenalties:
        """In some of the states."""
        return self._replace(reference=self.reference.select(index))


class PPO:
    """Actor, critic, their optimizers, and the imitated policy and the demonstrations that the actor is held to."""

    def __init__(
        self,
        policy: GaussianPolicy,
        critic: ValueCritic,
        config: PPOConfig,
        generator: torch.Generator,
        demonstrations: DemoPairs | None = None,
        dist: DistContext = SINGLE_PROCESS,
    ) -> None:
        """`policy` and `critic` are on one device; `generator` is on the CPU, so that a run on another device draws
        the same numbers. Everybody in the `group` is given the same, batches too, and each computes a part."""
        self.policy, self.critic, self.config, self.generator = policy, critic, config, generator
        self.demonstrations, self.dist = demonstrations, dist
        self.reference = copy.deepcopy(policy).requires_grad_(False)
        actor_learning_rate = config.actor_learning_rate * float(policy.log_std.detach().exp().mean())
        self.actor_optimizer = FlatAdam(policy, actor_learning_rate, config.max_grad_norm)
        self.critic_optimizer = FlatAdam(critic, config.critic_learning_rate, config.max_grad_norm)

    @single_thread()
    @torch.inference_mode()
    def update(
        self, batch: PPOBatch, *, train_actor: bool = True, bc_kl_coef: float = 0.0, imitation_coef: float = 0.0
    ) -> UpdateStats:
        """Fit actor and critic to one batch, one beside the other. `reference_coef` weighs the KL divergence from the
        imitated policy, `imitation_coef` that from the demonstrations, which there must be then.

        Raises `UserError` instead of a step on a loss or gradient that is not finite.
        """
        normalized_obs = self.policy.normalizer(batch.observation)  # the imitated policy has the same
        reference, before = (
            GaussianBatch.from_policy(self.reference, normalized_obs),
            GaussianBatch.from_policy(self.policy, normalized_obs),
        )
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
        """Everything that the next update depends on, as named tensors."""
        return {
            **add_prefix("policy", self.policy.state_dict()),
            **add_prefix("critic", self.critic.state_dict()),
            **add_prefix("reference", self.reference.state_dict()),
            **add_prefix("actor_moments", self.actor_optimizer.state_dict()),
            **add_prefix("critic_moments", self.critic_optimizer.state_dict()),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Take over what `state` returned. Raises `CheckpointError` naming `source` when it does not fit."""
        for name, module in (("policy", self.policy), ("critic", self.critic), ("reference", self.reference)):
            load_into(module, strip_prefix(name, tensors), str(source))
        self.actor_optimizer.load_state_dict(strip_prefix("actor_moments", tensors), source)
        self.critic_optimizer.load_state_dict(strip_prefix("critic_moments", tensors), source)
        self.generator.set_state(tensors["generator"])

    def _minibatches(self, size: int) -> tuple[Tensor, ...]:
        order = torch.randperm(size, generator=self.generator).to(self.policy.device)
        # Equal parts: a small remainder would make a step as large as the others from a few transitions.
        return order.tensor_split(self.dist.num_minibatches(self.config.num_minibatches, size))

    def _run_both(self, num_states: int, critic: Callable[[], T], actor: Callable[[], U]) -> tuple[T, U]:
        """What both give, from minibatches of so many states. They share nothing that either changes, so each may have
        a thread; but a group must be asked for its sums in the same order by everybody."""
        threaded = self.dist.world_size == 1 and num_states >= MIN_STATES_FOR_THREADS and count_cores() > 1
        return run_concurrently(critic, actor) if threaded else (critic(), actor())

    def _fit_critic(
        self, epochs: Sequence[tuple[Tensor, ...]], inputs: Tensor, target: Tensor
    ) -> list[LossAndGradNorm]:
        """`inputs` [B, D + 1] and `target` [B]; `epochs`: the rows of every minibatch of each."""
        return [
            self._step_critic(inputs[shard], target[shard], len(rows))
            for rows in itertools.chain(*epochs)
            for shard in [self.dist.shard(rows)]
        ]

    def _fit_actor(
        self,
        epochs: Sequence[tuple[Tensor, ...]],
        normalized_obs: Tensor,
        actions: ActionBatch,
        penalties: KLPenalties,
        before: GaussianBatch,
    ) -> list[list[LossAndGradNorm]]:
        """The steps of each epoch, until the policy has moved away from `before`; `seen` [B, D], and all others of the
        same states."""
        steps: list[list[LossAndGradNorm]] = []
        for epoch in epochs:
            shards = [(self.dist.shard(rows), len(rows)) for rows in epoch]
            steps.append(
                [
                    self._step_actor(normalized_obs[rows], actions.select(rows), n, penalties.select(rows))
                    for rows, n in shards
                ]
            )
            sample = torch.cat(epoch)[:KL_SAMPLE_SIZE]
            kl = GaussianBatch.from_policy(self.policy, normalized_obs[sample]).mean_kl(before.select(sample))
            if self._all_reduce_mean(kl) >= self.config.target_kl:
                break
        return steps

    def _all_reduce_mean(self, value: float) -> float:
        """The mean of what everybody found: processors that round otherwise must not part ways."""
        mean = torch.tensor([value / self.dist.world_size], device=self.policy.device)
        self.dist.all_reduce([mean])
        return float(mean)

    def _step_critic(self, inputs: Tensor, target: Tensor, count: int) -> LossAndGradNorm:
        """`inputs` [b, D + 1] and `target` [b]: this process's part of a minibatch of `count`."""
        activations = forward(self.critic.mlp, inputs)
        error = activations[-1] - target[:, None]
        backward(self.critic.mlp, activations, 2 / count * error)
        return self._step(error.square().sum() / count, self.critic_optimizer, "critic")

    def _step_actor(
        self, normalized_obs: Tensor, actions: ActionBatch, count: int, penalties: KLPenalties
    ) -> LossAndGradNorm:
        """`seen` [b, D], `acted` and `held` are of this process's part of a minibatch of `count`."""
        demo_obs, demo_action = (
            self._sample_demonstrations(count) if penalties.imitation_coef else (normalized_obs[:0], actions.action[:0])
        )
        activations = forward(self.policy.mlp, torch.cat([normalized_obs, demo_obs]))
        (mean, demo_mean), log_std = (
            activations[-1].split([len(normalized_obs), len(demo_obs)]),
            self.policy.clamped_log_std,
        )
        terms = [(-1.0, clipped_surrogate_grad(actions, mean, log_std, self.config.clip_range))]
        if penalties.bc_kl_coef:
            terms.append((penalties.bc_kl_coef, kl_grad(mean, log_std, *penalties.reference)))
        if self.config.entropy_coef:
            terms.append((-self.config.entropy_coef, entropy_grad(mean, log_std)))
        loss, mean_grad, log_std_grad = weighted_sum(*terms)
        if penalties.imitation_coef:
            # From whoever does what was demonstrated with the noise of now: demonstrations have none to be drawn to.
            demo_kl = kl_grad(demo_mean, log_std, demo_action, log_std)
            loss = loss + penalties.imitation_coef * demo_kl.value
            mean_grad = torch.cat([mean_grad, penalties.imitation_coef * demo_kl.mean])
        backward(self.policy.mlp, activations, mean_grad / count)
        assert self.policy.log_std.grad is not None
        self.policy.log_std.grad.copy_(clamp_grad(self.policy.log_std, log_std_grad / count))
        return self._step(loss / count, self.actor_optimizer, "actor")

    def _sample_demonstrations(self, count: int) -> tuple[Tensor, Tensor]:
        """This process's part of `count` moments of the demonstrations: what the policy is given, what was done."""
        assert self.demonstrations is not None
        sample = self.demonstrations.sample(count, self.generator)
        observation, action = (self.dist.shard(column).to(self.policy.device) for column in sample)
        return self.policy.normalizer(observation), action

    def _step(self, loss: Tensor, optimizer: FlatAdam, name: str) -> LossAndGradNorm:
        """`loss` and the gradient: this process's part of a sum."""
        self.dist.all_reduce([loss, optimizer.gradient])
        loss_value, grad_norm = loss.item(), optimizer.gradient.norm().item()
        if not (isfinite(loss_value) and isfinite(grad_norm)):
            raise UserError(
                f"the {name} loss became {loss_value} (gradient norm {grad_norm}); the step was not taken. "
                f"Check rewards and observations for non-finite numbers, or lower {name}_lr={self._learning_rate(name)}"
            )
        optimizer.step(grad_norm)
        return loss_value, grad_norm

    def _learning_rate(self, name: str) -> float:
        return self.config.actor_learning_rate if name == "actor" else self.config.critic_learning_rate


@torch.no_grad()
def explained_variance(critic: ValueCritic, batch: PPOBatch) -> float:
    """1 - Var(target - value) / Var(target); at most 1, and 0 where all targets are alike."""
    error = batch.target - critic(batch.critic_observation, batch.potential)
    target_variance = float(batch.target.var(correction=0))
    return 1 - float(error.var(correction=0)) / target_variance if target_variance else 0.0
