"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347) that starts from an imitated policy.

What that start needs and libraries lack: iterations that train the critic alone, penalties for leaving the imitated
policy and the demonstrations, and separate optimisers, so that the actor can rest while the critic goes on.
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

from embodied_rm.checkpoint_io import load_into, under_prefix, with_prefix
from embodied_rm.errors import UserError
from embodied_rm.group import ALONE, Group
from embodied_rm.rl.learner.buffer import Batch
from embodied_rm.rl.learner.gradients import (
    Acted,
    backward,
    clipped_gain_slope,
    divergence_slope,
    entropy_slope,
    forward,
    summed,
    through_clamp,
)
from embodied_rm.rl.learner.imitation import Pairs
from embodied_rm.rl.learner.optimiser import VectorAdam
from embodied_rm.rl.learner.policy import Critic, GaussianPolicy, gaussian_kl
from embodied_rm.rl.learner.threads import cores, one_thread, side_by_side

T = TypeVar("T")
U = TypeVar("U")
Step = tuple[float, float]
"""Loss, and norm of its gradient."""
MEASURED = 1024
"""States, or all of fewer, in which it is measured after every epoch how far the policy moved."""
WORTH_A_THREAD = 128
"""States in a minibatch from which on actor and critic learn side by side. With fewer, most of the time is Python's,
which serves one thread at a time: of 60, side by side was measured a sixth slower; of 240, a fifth faster."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Proximal policy optimisation. `gamma` is the only discount there is: shaping uses it too."""

    gamma: float = 0.98
    gae_lambda: float = 0.85
    actor_lr: float = 2e-3
    """For an exploration noise of 1; scaled by the noise at the start, because a step of the mean counts relative
    to it: the same divergence an update, however carefully the policy explores."""
    critic_lr: float = 1e-3
    epochs: int = 8
    minibatches: int = 16
    """Parts of a rollout, each of which makes one step of the optimisers in every epoch."""
    clip: float = 0.3
    entropy_coef: float = 0.0
    target_kl: float = 0.2
    """The actor rests for the remaining epochs once the policy moved further than this (nats, mean over states)."""
    max_grad_norm: float = 0.5

    def __post_init__(self) -> None:
        for name in ("gamma", "gae_lambda"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        for name in ("actor_lr", "critic_lr", "epochs", "minibatches", "clip", "target_kl", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """What one update did; losses and gradients are means over its minibatches."""

    kl: float
    """Mean KL divergence of the policy after the update from the one that acted, in nats."""
    reference_kl: float
    """The same from the imitated policy."""
    critic_loss: float
    entropy: float
    """Of the policy after the update, differential, in nats: summed over the actions."""
    explained_variance: float
    """Share of the variance of the returns that the critic foresaw, before the update; 0 if there was none."""
    advantage_spread: float
    """See `Batch`."""
    actor_gradient: float
    """Norm of the gradient before clipping, as in the next; 0 while the actor rests."""
    critic_gradient: float
    actor_epochs: int
    """Epochs in which the actor moved."""


class Gaussians(NamedTuple):
    """What a policy would do in every state of a batch, fixed at one moment."""

    mean: Tensor
    log_std: Tensor

    @classmethod
    def of(cls, policy: GaussianPolicy, seen: Tensor) -> Gaussians:
        """`seen`: the states as the policy's normaliser gives them."""
        return cls(policy.mlp(seen), policy.noise)

    def rows(self, index: Tensor) -> Gaussians:
        """Those of some of the states."""
        return Gaussians(self.mean[index], self.log_std)

    def divergence(self, other: Gaussians) -> float:
        """Mean KL divergence from `other`, in nats."""
        return float(gaussian_kl(self.mean, self.log_std, other.mean, other.log_std).mean())


class Held(NamedTuple):
    """What the actor is held to, and how strongly."""

    reference: Gaussians
    """The imitated policy, in some states."""
    reference_coef: float
    imitation_coef: float

    def rows(self, index: Tensor) -> Held:
        """In some of the states."""
        return self._replace(reference=self.reference.rows(index))


class PPO:
    """Actor, critic, their optimisers, and the imitated policy and the demonstrations that the actor is held to."""

    def __init__(
        self,
        policy: GaussianPolicy,
        critic: Critic,
        config: PPOConfig,
        generator: torch.Generator,
        demonstrations: Pairs | None = None,
        group: Group = ALONE,
    ) -> None:
        """`policy` and `critic` are on one device; `generator` is on the CPU, so that a run on another device draws
        the same numbers. Everybody in the `group` is given the same, batches too, and each computes a part."""
        self.policy, self.critic, self.config, self.generator = policy, critic, config, generator
        self.demonstrations, self.group = demonstrations, group
        self.reference = copy.deepcopy(policy).requires_grad_(False)
        actor_lr = config.actor_lr * float(policy.log_std.detach().exp().mean())
        self.actor_optimiser = VectorAdam(policy, actor_lr, config.max_grad_norm)
        self.critic_optimiser = VectorAdam(critic, config.critic_lr, config.max_grad_norm)

    @one_thread()
    @torch.inference_mode()
    def update(
        self, batch: Batch, *, train_actor: bool = True, reference_coef: float = 0.0, imitation_coef: float = 0.0
    ) -> UpdateStats:
        """Fit actor and critic to one batch, one beside the other. `reference_coef` weighs the KL divergence from the
        imitated policy, `imitation_coef` that from the demonstrations, which there must be then.

        Raises `UserError` instead of a step on a loss or gradient that is not finite.
        """
        seen = self.policy.normaliser(batch.observation)  # the imitated policy has the same
        reference, before = Gaussians.of(self.reference, seen), Gaussians.of(self.policy, seen)
        explained = explained_variance(self.critic, batch)
        acted = Acted(batch.action, batch.log_prob, batch.advantage)
        held = Held(reference, reference_coef, imitation_coef)
        epochs = [self._minibatches(len(batch)) for _ in range(self.config.epochs)]
        critic, actor = self._both(
            len(epochs[0][0]),
            lambda: self._fit_critic(
                epochs, self.critic.inputs(batch.critic_observation, batch.potential), batch.target
            ),
            lambda: self._fit_actor(epochs if train_actor else [], seen, acted, held, before),
        )
        after = Gaussians.of(self.policy, seen)
        return UpdateStats(
            kl=after.divergence(before),
            reference_kl=after.divergence(reference),
            critic_loss=fmean(loss for loss, _ in critic),
            entropy=float(after.log_std.sum()) + after.log_std.shape[-1] * 0.5 * log(2 * pi * e),
            explained_variance=explained,
            advantage_spread=batch.advantage_spread,
            actor_gradient=fmean(norm for epoch in actor for _, norm in epoch) if actor else 0.0,
            critic_gradient=fmean(norm for _, norm in critic),
            actor_epochs=len(actor),
        )

    def state(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, as named tensors."""
        return {
            **with_prefix("policy", self.policy.state_dict()),
            **with_prefix("critic", self.critic.state_dict()),
            **with_prefix("reference", self.reference.state_dict()),
            **with_prefix("actor_moments", self.actor_optimiser.state()),
            **with_prefix("critic_moments", self.critic_optimiser.state()),
            "generator": self.generator.get_state(),
        }

    def restore(self, tensors: dict[str, Tensor], source: object) -> None:
        """Take over what `state` returned. Raises `CheckpointError` naming `source` when it does not fit."""
        for name, module in (("policy", self.policy), ("critic", self.critic), ("reference", self.reference)):
            load_into(module, under_prefix(name, tensors), str(source))
        self.actor_optimiser.restore(under_prefix("actor_moments", tensors), source)
        self.critic_optimiser.restore(under_prefix("critic_moments", tensors), source)
        self.generator.set_state(tensors["generator"])

    def _minibatches(self, size: int) -> tuple[Tensor, ...]:
        order = torch.randperm(size, generator=self.generator).to(self.policy.device)
        # Equal parts: a small remainder would make a step as large as the others from a few transitions.
        return order.tensor_split(self.group.minibatches(self.config.minibatches, size))

    def _both(self, states: int, critic: Callable[[], T], actor: Callable[[], U]) -> tuple[T, U]:
        """What both give, from minibatches of so many states. They share nothing that either changes, so each may have
        a thread; but a group must be asked for its sums in the same order by everybody."""
        alone = self.group.size == 1 and states >= WORTH_A_THREAD and cores() > 1
        return side_by_side(critic, actor) if alone else (critic(), actor())

    def _fit_critic(self, epochs: Sequence[tuple[Tensor, ...]], inputs: Tensor, target: Tensor) -> list[Step]:
        """`inputs` [B, D + 1] and `target` [B]; `epochs`: the rows of every minibatch of each."""
        return [
            self._step_critic(inputs[mine], target[mine], len(rows))
            for rows in itertools.chain(*epochs)
            for mine in [self.group.shard(rows)]
        ]

    def _fit_actor(
        self, epochs: Sequence[tuple[Tensor, ...]], seen: Tensor, acted: Acted, held: Held, before: Gaussians
    ) -> list[list[Step]]:
        """The steps of each epoch, until the policy has moved away from `before`; `seen` [B, D], and all others of the
        same states."""
        taken: list[list[Step]] = []
        for epoch in epochs:
            shards = [(self.group.shard(rows), len(rows)) for rows in epoch]
            taken.append([self._step_actor(seen[rows], acted.rows(rows), n, held.rows(rows)) for rows, n in shards])
            some = torch.cat(epoch)[:MEASURED]
            moved = Gaussians.of(self.policy, seen[some]).divergence(before.rows(some))
            if self._agreed(moved) >= self.config.target_kl:
                break
        return taken

    def _agreed(self, number: float) -> float:
        """The mean of what everybody found: processors that round otherwise must not part ways."""
        shares = torch.tensor([number / self.group.size], device=self.policy.device)
        self.group.all_reduce([shares])
        return float(shares)

    def _step_critic(self, inputs: Tensor, target: Tensor, count: int) -> Step:
        """`inputs` [b, D + 1] and `target` [b]: this process's part of a minibatch of `count`."""
        kept = forward(self.critic.mlp, inputs)
        missed = kept[-1] - target[:, None]
        backward(self.critic.mlp, kept, 2 / count * missed)
        return self._step(missed.square().sum() / count, self.critic_optimiser, "critic")

    def _step_actor(self, seen: Tensor, acted: Acted, count: int, held: Held) -> Step:
        """`seen` [b, D], `acted` and `held` are of this process's part of a minibatch of `count`."""
        shown, imitated = self._demonstrated(count) if held.imitation_coef else (seen[:0], acted.action[:0])
        kept = forward(self.policy.mlp, torch.cat([seen, shown]))
        (mean, imitating), log_std = kept[-1].split([len(seen), len(shown)]), self.policy.noise
        terms = [(-1.0, clipped_gain_slope(acted, mean, log_std, self.config.clip))]
        if held.reference_coef:
            terms.append((held.reference_coef, divergence_slope(mean, log_std, *held.reference)))
        if self.config.entropy_coef:
            terms.append((-self.config.entropy_coef, entropy_slope(mean, log_std)))
        loss, slope, noise_slope = summed(*terms)
        if held.imitation_coef:
            # From whoever does what was demonstrated with the noise of now: demonstrations have none to be drawn to.
            unlike = divergence_slope(imitating, log_std, imitated, log_std)
            loss = loss + held.imitation_coef * unlike.value
            slope = torch.cat([slope, held.imitation_coef * unlike.mean])
        backward(self.policy.mlp, kept, slope / count)
        assert self.policy.log_std.grad is not None
        self.policy.log_std.grad.copy_(through_clamp(self.policy.log_std, noise_slope / count))
        return self._step(loss / count, self.actor_optimiser, "actor")

    def _demonstrated(self, count: int) -> tuple[Tensor, Tensor]:
        """This process's part of `count` moments of the demonstrations: what the policy is given, what was done."""
        assert self.demonstrations is not None
        drawn = self.demonstrations.draw(count, self.generator)
        observation, action = (self.group.shard(column).to(self.policy.device) for column in drawn)
        return self.policy.normaliser(observation), action

    def _step(self, loss: Tensor, optimiser: VectorAdam, name: str) -> Step:
        """`loss` and the gradient: this process's part of a sum."""
        self.group.all_reduce([loss, optimiser.gradient])
        number, norm = loss.item(), optimiser.gradient.norm().item()
        if not (isfinite(number) and isfinite(norm)):
            raise UserError(
                f"the {name} loss became {number} (gradient norm {norm}); the step was not taken. "
                f"Check rewards and observations for non-finite numbers, or lower {name}_lr={self._lr(name)}"
            )
        optimiser.step(norm)
        return number, norm

    def _lr(self, name: str) -> float:
        return self.config.actor_lr if name == "actor" else self.config.critic_lr


@torch.no_grad()
def explained_variance(critic: Critic, batch: Batch) -> float:
    """1 - Var(target - value) / Var(target); at most 1, and 0 where all targets are alike."""
    missed = batch.target - critic(batch.critic_observation, batch.potential)
    spread = float(batch.target.var(correction=0))
    return 1 - float(missed.var(correction=0)) / spread if spread else 0.0
