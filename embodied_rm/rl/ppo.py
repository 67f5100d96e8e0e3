"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347) that starts from an imitated policy.

What that start needs and libraries lack: iterations that train the critic alone, penalties for leaving the imitated
policy and the demonstrations, and separate optimisers, so that the actor can rest while the critic goes on.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from embodied_rm.checkpoint_io import load_into, under_prefix, with_prefix
from embodied_rm.errors import UserError
from embodied_rm.rl.buffer import Batch
from embodied_rm.rl.group import ALONE, Group
from embodied_rm.rl.imitation import Pairs
from embodied_rm.rl.policy import Critic, GaussianPolicy, gaussian_kl, log_prob
from embodied_rm.rl.threads import one_thread

Step = tuple[float, float]
"""Loss, and norm of its gradient."""
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


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
    """The actor rests for the remaining epochs once the policy moved further than this (nats, mean over the batch)."""
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
    explained_variance: float
    """Share of the variance of the returns that the critic foresaw, before the update; 0 if there was none."""
    actor_gradient: float
    """Norm of the gradient before clipping, as in the next; 0 while the actor rests."""
    critic_gradient: float
    actor_epochs: int
    """Epochs in which the actor moved."""


@dataclass(frozen=True)
class Gaussians:
    """What a policy would do in every state of a batch, fixed at one moment."""

    mean: Tensor
    log_std: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, policy: GaussianPolicy, observation: Tensor) -> Gaussians:
        mean, log_std = policy(observation)
        return cls(mean, log_std.clone())

    def divergence(self, other: Gaussians) -> float:
        """Mean KL divergence from `other`, in nats."""
        return float(gaussian_kl(self.mean, self.log_std, other.mean, other.log_std).mean())


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
        self.actor_optimiser = torch.optim.Adam(policy.parameters(), lr=actor_lr, eps=1e-5, fused=True)
        self.critic_optimiser = torch.optim.Adam(critic.parameters(), lr=config.critic_lr, eps=1e-5, fused=True)

    @one_thread()
    def update(
        self, batch: Batch, *, train_actor: bool = True, reference_coef: float = 0.0, imitation_coef: float = 0.0
    ) -> UpdateStats:
        """Fit actor and critic to one batch. `reference_coef` weighs the KL divergence from the imitated policy,
        `imitation_coef` that from the demonstrations, which there must be then.

        Raises `UserError` instead of a step on a loss or gradient that is not finite.
        """
        reference = Gaussians.of(self.reference, batch.observation)
        before = Gaussians.of(self.policy, batch.observation)
        explained = explained_variance(self.critic, batch)
        steps: dict[str, list[Step]] = {"actor": [], "critic": []}
        actor_epochs, moving, after = 0, train_actor, before
        for _ in range(self.config.epochs):
            for rows in self._minibatches(len(batch)):
                steps["critic"].append(self._step_critic(batch, rows))
                if moving:
                    steps["actor"].append(self._step_actor(batch, rows, reference, reference_coef, imitation_coef))
            actor_epochs += moving
            after = Gaussians.of(self.policy, batch.observation) if moving else after
            moving = moving and self._agreed(after.divergence(before)) < self.config.target_kl
        return UpdateStats(
            kl=after.divergence(before),
            reference_kl=after.divergence(reference),
            critic_loss=fmean(loss for loss, _ in steps["critic"]),
            entropy=float(entropy(after.log_std)),
            explained_variance=explained,
            actor_gradient=fmean(norm for _, norm in steps["actor"]) if steps["actor"] else 0.0,
            critic_gradient=fmean(norm for _, norm in steps["critic"]),
            actor_epochs=actor_epochs,
        )

    def state(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, as named tensors."""
        return {
            **with_prefix("policy", self.policy.state_dict()),
            **with_prefix("critic", self.critic.state_dict()),
            **with_prefix("reference", self.reference.state_dict()),
            **with_prefix("actor_moments", _moments(self.policy, self.actor_optimiser)),
            **with_prefix("critic_moments", _moments(self.critic, self.critic_optimiser)),
            "generator": self.generator.get_state(),
        }

    def restore(self, tensors: dict[str, Tensor], source: object) -> None:
        """Take over what `state` returned. Raises `CheckpointError` naming `source` when it does not fit."""
        for name, module in (("policy", self.policy), ("critic", self.critic), ("reference", self.reference)):
            load_into(module, under_prefix(name, tensors), str(source))
        _restore_moments(self.policy, self.actor_optimiser, under_prefix("actor_moments", tensors))
        _restore_moments(self.critic, self.critic_optimiser, under_prefix("critic_moments", tensors))
        self.generator.set_state(tensors["generator"])

    def _minibatches(self, size: int) -> Iterator[Tensor]:
        order = torch.randperm(size, generator=self.generator).to(self.policy.device)
        # Equal parts: a small remainder would make a step as large as the others from a few transitions.
        return iter(order.tensor_split(self.group.minibatches(self.config.minibatches, size)))

    def _agreed(self, number: float) -> float:
        """The mean of what everybody found: processors that round otherwise must not part ways."""
        shares = torch.tensor([number / self.group.size], device=self.policy.device)
        self.group.all_reduce([shares])
        return float(shares)

    def _step_critic(self, batch: Batch, rows: Tensor) -> Step:
        mine = self.group.shard(rows)
        loss = mse_loss(self.critic(batch.critic_observation[mine], batch.potential[mine]), batch.target[mine])
        return self._step(loss * (len(mine) / len(rows)), self.critic, self.critic_optimiser, "critic")

    def _step_actor(
        self, batch: Batch, rows: Tensor, reference: Gaussians, reference_coef: float, imitation_coef: float
    ) -> Step:
        mine = self.group.shard(rows)
        mean, log_std = self.policy(batch.observation[mine])
        ratio = torch.exp(log_prob(batch.action[mine], mean, log_std) - batch.log_prob[mine])
        leaving = gaussian_kl(mean, log_std, reference.mean[mine], reference.log_std).mean()
        gain = clipped_gain(ratio, batch.advantage[mine], self.config.clip)
        loss = -gain + reference_coef * leaving - self.config.entropy_coef * entropy(log_std)
        if imitation_coef:
            loss = loss + imitation_coef * self._unlike(len(rows))
        return self._step(loss * (len(mine) / len(rows)), self.policy, self.actor_optimiser, "actor")

    def _unlike(self, count: int) -> Tensor:
        """Mean KL divergence, in nats, from whoever does what was demonstrated with the exploration noise of now: the
        noise is not drawn towards the demonstrations, which have none."""
        assert self.demonstrations is not None
        drawn = self.demonstrations.draw(count, self.generator)
        observation, action = (self.group.shard(column).to(self.policy.device) for column in drawn)
        mean, log_std = self.policy(observation)
        return gaussian_kl(mean, log_std.detach(), action, log_std.detach()).mean()

    def _step(self, loss: Tensor, module: nn.Module, optimiser: torch.optim.Optimizer, name: str) -> Step:
        """`loss`: this process's part of a sum."""
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        loss = loss.detach()
        self.group.all_reduce([loss, *(p.grad for p in module.parameters() if p.grad is not None)])
        norm = nn.utils.clip_grad_norm_(module.parameters(), self.config.max_grad_norm)
        number = loss.item()
        if not (torch.isfinite(loss) and torch.isfinite(norm)):
            raise UserError(
                f"the {name} loss became {number} (gradient norm {norm.item()}); the step was not taken. "
                f"Check rewards and observations for non-finite numbers, or lower {name}_lr={self._lr(name)}"
            )
        optimiser.step()
        return number, norm.item()

    def _lr(self, name: str) -> float:
        return self.config.actor_lr if name == "actor" else self.config.critic_lr


def clipped_gain(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped surrogate objective, a scalar to maximise (arXiv 1707.06347, eq. 7)."""
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


@torch.no_grad()
def explained_variance(critic: Critic, batch: Batch) -> float:
    """1 - Var(target - value) / Var(target); at most 1, and 0 where all targets are alike."""
    missed = batch.target - critic(batch.critic_observation, batch.potential)
    spread = float(batch.target.var(correction=0))
    return 1 - float(missed.var(correction=0)) / spread if spread else 0.0


def entropy(log_std: Tensor) -> Tensor:
    """Differential entropy of a diagonal Gaussian, in nats, up to its constant per dimension."""
    return log_std.sum()


def _moments(module: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}.{moment}": optimiser.state[parameter][moment]
        for name, parameter in module.named_parameters()
        if parameter in optimiser.state
        for moment in MOMENTS
    }


def _restore_moments(module: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    for name, parameter in module.named_parameters():
        if f"{name}.step" in tensors:
            stored = {moment: tensors[f"{name}.{moment}"] for moment in MOMENTS}
            optimiser.state[parameter] = {k: tensor.to(parameter.device, copy=True) for k, tensor in stored.items()}
