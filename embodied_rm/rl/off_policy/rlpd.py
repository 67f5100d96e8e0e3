"""Reinforcement learning with prior data: half of every batch is recorded, the other half is of the learner's own.

Source: Ball et al., arXiv 2302.02948 ("RLPD"): many updates per step, an ensemble of critics with layer normalization,
symmetric sampling. The policy is deterministic with exploration noise, as in TD3 (arXiv 1802.09477), since it starts
from a cloned one. Against overestimated values, which lose the cloned policy again, it maximizes a lower bound of the
ensemble, targets stay in the range of possible values, and a reference policy, which follows slowly, holds it back.
Recordings of another world than the environments' are weighed against them by the gap of the dynamics. What a helper
did in the environments counts as recorded too, as in HIL-SERL (arXiv 2410.21845), unless the gap separates the two.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

import torch
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, load_into, strip_prefix
from embodied_rm.distributed import SINGLE_PROCESS
from embodied_rm.errors import UserError
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.optimizer import FlatAdam, take_finite_step
from embodied_rm.rl.learner.policy import GaussianPolicy, gaussian_kl, mirror
from embodied_rm.rl.learner.ppo import KL_SAMPLE_SIZE, GaussianBatch
from embodied_rm.rl.off_policy.dynamics_gap import DynamicsGap, simulated_value_penalty, trust_weights
from embodied_rm.rl.off_policy.off_policy_config import RLPDConfig
from embodied_rm.rl.off_policy.replay_buffer import ReplayBuffer, helped_transitions
from embodied_rm.rl.off_policy.smoothness import largest_change
from embodied_rm.rl.offline.critics import QEnsemble, squared_excess, td_target, update_target
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.threads import torch_threads

MODULES = ("policy", "imitated", "reference", "critics", "target_critics")
MAX_GRAD_NORM = 10.0
MAX_TARGET_NOISE = 3.0  # bound of the noise of targets, in standard deviations


@dataclass(frozen=True, kw_only=True)
class RLPDStats:
    """Statistics of the updates after one rollout; losses and values are means over them."""

    kl: float  # mean KL divergence of the policy after the updates from the one that acted, in nats
    bc_kl: float  # mean KL divergence of the policy from the imitated policy, in nats
    critic_loss: float
    q_recorded: float  # mean value of recorded actions; above the largest return, values are overestimated
    q_policy: float  # mean value of the policy's actions; 0 in iterations that do not train it
    dynamics_gap: float  # KL divergence of the simulator's dynamics from the recorded ones, nats; 0: not estimated
    updates: int


class RLPD:
    """Policy and critics on the CPU, with their optimizers, recorded transitions and a replay buffer."""

    dist = SINGLE_PROCESS

    def __init__(
        self,
        policy: GaussianPolicy,
        recorded: OfflineTransitions,
        config: RLPDConfig,
        gamma: float,
        seed: int,
        value_range: tuple[float, float] = (-inf, inf),
    ) -> None:
        """
        Args:
            policy: The policy, trained in place; its normalizer is that of the critics too.
            recorded: Recorded transitions, with the rewards of the environment's rule.
            config: Settings.
            gamma: Discount, that of the rewards.
            seed: Of the critics' weights and of batches and noise.
            value_range: Smallest and largest possible value; targets are kept in it.
        """
        self.policy, self.config, self.gamma, self.value_range = policy, config, gamma, value_range
        self._recorded, self._recorded_per_batch = recorded, round(config.recorded_share * config.batch_size)
        self._num_given = len(recorded)
        self.imitated, self.reference = (copy.deepcopy(policy).requires_grad_(False) for _ in range(2))
        self.generator = torch.Generator().manual_seed(seed)
        spec = policy.spec
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.critics = QEnsemble(policy.normalizer, spec.action_dim, config.critic_hidden_sizes, config.num_critics)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.replay = ReplayBuffer(config.buffer_capacity, spec.obs_dim, spec.action_dim)
        self.policy_optimizer = FlatAdam(policy.mlp, config.learning_rate, MAX_GRAD_NORM)
        self.critics_optimizer = FlatAdam(self.critics, config.learning_rate, MAX_GRAD_NORM)
        self._num_updates = 0
        self.gap: DynamicsGap | None = None
        if config.dynamics_gap_coef:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                self.gap = DynamicsGap(policy.normalizer, recorded)
            self.gap_optimizer = FlatAdam(self.gap, config.learning_rate, MAX_GRAD_NORM)

    @property
    def num_recorded(self) -> int:
        """Number of recorded transitions, with those of a helper."""
        return len(self._recorded)

    @torch_threads(1)
    def update(self, rollout: RolloutBuffer, *, train_policy: bool) -> RLPDStats:
        """Add a rollout to the replay buffer, and take as many updates as its steps ask for.

        Raises:
            UserError: A loss or gradient is not finite. That step is not taken.
        """
        if not rollout.valid.any():
            raise UserError(f"all {rollout.valid.size} transitions of the rollout diverged in the simulation")
        self.replay.add(rollout)
        if self.gap is None and rollout.helped.any():
            self._add_helped(helped_transitions(rollout))
        observation = torch.from_numpy(rollout.observation.reshape(-1, rollout.obs_dim))[:KL_SAMPLE_SIZE]
        before = self._distributions(self.policy, observation)
        critic_losses, policy_values, recorded_values = [], [], []
        if not self._num_updates:
            for _ in range(self.config.pretraining_updates):
                self._step_critics(self._sample())
        for _ in range(max(1, round(self.config.updates_per_step * rollout.num_steps * rollout.num_envs))):
            batch = self._sample()
            loss, value = self._step_critics(batch)
            critic_losses.append(loss)
            recorded_values.append(value)
            self._num_updates += 1
            if train_policy and self._num_updates % self.config.policy_delay == 0:
                policy_values.append(self._step_policy(batch))
        after = self._distributions(self.policy, observation)
        return RLPDStats(
            kl=after.mean_kl(before),
            bc_kl=after.mean_kl(self._distributions(self.imitated, observation)),
            critic_loss=fmean(critic_losses),
            q_recorded=fmean(recorded_values),
            q_policy=fmean(policy_values) if policy_values else 0.0,
            dynamics_gap=0.0 if self.gap is None else -float(self.gap.log_ratio(self._sample_own()).mean()),
            updates=len(critic_losses),
        )

    def critic_loss(self, batch: OfflineTransitions) -> tuple[Tensor, Tensor]:
        """Return the squared TD error, summed over the critics, and their values [E, B] of the batch."""
        normalizer = self.policy.normalizer
        next_obs = normalizer(batch.next_observation)
        with torch.no_grad():
            noise = torch.randn(batch.action.shape, generator=self.generator)
            noise = self.config.target_noise * noise.clamp(-MAX_TARGET_NOISE, MAX_TARGET_NOISE)
            next_action = (self.policy.mlp(next_obs).clamp(-1, 1) + noise).clamp(-1, 1)
            next_value = self.target_critics(next_obs, next_action)[self._draw_critics()].amin(0)
            target = td_target(batch.reward, batch.terminated, next_value, self.gamma).clamp(*self.value_range)
        observation, action = normalizer(batch.observation), batch.action.clamp(-1, 1)
        values = self.critics(observation, action)
        at_state = values.detach()
        smoothness = self._smoothness_loss(
            lambda near: (self.critics(near, action) - at_state).square().sum(0), observation
        )
        squared_error = (values - target).square()
        if self.gap is None:
            return squared_error.mean(1).sum() + smoothness, values
        count = self._recorded_per_batch
        log_ratio = self.gap.log_ratio(batch.take(torch.arange(count, len(batch))))
        weight = torch.cat([torch.ones(count), trust_weights(log_ratio)])
        penalty = simulated_value_penalty(values[:, count:], log_ratio, values[:, :count])
        loss = (weight * squared_error).mean(1).sum() + self.config.dynamics_gap_coef * penalty
        return loss + smoothness, values

    def policy_loss(self, batch: OfflineTransitions) -> tuple[Tensor, Tensor]:
        """Return the loss of the policy, and the mean values [B] of its actions."""
        observation = self.policy.normalizer(batch.observation)
        unbounded = self.policy.mlp(observation)
        action = unbounded.clamp(-1, 1)
        values = self.critics(observation, action)
        lower_bound = values.mean(0) - self.config.pessimism * values.std(0, correction=0)
        # The values have no gradient beyond the bounds of actions; the second term leads back.
        loss = (squared_excess(unbounded) - lower_bound).mean()
        log_std = self.policy.clamped_log_std
        divergence = gaussian_kl(unbounded, log_std, self.reference.mlp(observation), log_std)
        at_state = unbounded.detach()
        smoothness = self._smoothness_loss(
            lambda near: gaussian_kl(self.policy.mlp(near), log_std, at_state, log_std), observation
        )
        return loss + self.config.bc_kl_coef * divergence.mean() + smoothness, values.mean(0)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the next update depends on but the given transitions, as named tensors."""
        tensors = {"generator": self.generator.get_state(), "num_updates": torch.tensor(self._num_updates)}
        for name in (*self._module_names, *self._optimizer_names, "replay"):
            tensors |= add_prefix(name, getattr(self, name).state_dict())
        helped = self._recorded.take(torch.arange(self._num_given, self.num_recorded))
        return tensors | add_prefix("helped", vars(helped))

    def load_state_dict(self, tensors: Mapping[str, Tensor], source: object) -> None:
        """Restore the state of `state_dict`; raise `CheckpointError` with the name of `source` if it does not fit."""
        for name in self._module_names:
            load_into(getattr(self, name), strip_prefix(name, tensors), str(source))
        for name in (*self._optimizer_names, "replay"):
            getattr(self, name).load_state_dict(strip_prefix(name, tensors), source)
        if helped := strip_prefix("helped", tensors):
            given = self._recorded.take(torch.arange(self._num_given))
            self._recorded = OfflineTransitions.concat([given, OfflineTransitions(**helped)])
        self.generator.set_state(tensors["generator"])
        self._num_updates = int(tensors["num_updates"])

    def _add_helped(self, transitions: OfflineTransitions) -> None:
        """Add transitions of a helper to the recorded ones, with as many in all as the replay buffer has room for."""
        given, earlier = torch.arange(self._num_given), torch.arange(self._num_given, self.num_recorded)
        kept = earlier[max(0, len(earlier) + len(transitions) - self.config.buffer_capacity) :]
        self._recorded = OfflineTransitions.concat([self._recorded.take(torch.cat([given, kept])), transitions])

    @property
    def _module_names(self) -> tuple[str, ...]:
        return MODULES if self.gap is None else (*MODULES, "gap")

    @property
    def _optimizer_names(self) -> tuple[str, ...]:
        return tuple(f"{name}_optimizer" for name in ("policy", "critics", *(() if self.gap is None else ("gap",))))

    def _draw_critics(self) -> Tensor | slice:
        """Return the Q-functions whose minimum is in the targets of a batch."""
        if self.config.num_min_critics is None:
            return slice(None)
        return torch.randperm(self.config.num_critics, generator=self.generator)[: self.config.num_min_critics]

    def _sample(self) -> OfflineTransitions:
        """Sample a batch, whose first part is recorded."""
        count = self._recorded_per_batch
        parts = [self._recorded.sample(count, self.generator)] if count else []
        if count < self.config.batch_size:
            parts.append(self._sample_own())
        return self._mirror_half(OfflineTransitions.concat(parts))

    def _mirror_half(self, batch: OfflineTransitions) -> OfflineTransitions:
        """Return the batch with a random half as mirror images (arXiv 1909.10707), if the policy has such images."""
        spec = self.policy.spec
        if not spec.mirrored_columns:
            return batch
        chosen = torch.rand(len(batch), 1, generator=self.generator) < 0.5
        columns = {"observation": spec.mirrored_columns, "next_observation": spec.mirrored_columns}
        columns["action"] = spec.mirrored_actions
        values = {name: getattr(batch, name) for name in columns}
        return replace(batch, **{name: torch.where(chosen, mirror(v, columns[name]), v) for name, v in values.items()})

    def _sample_own(self) -> OfflineTransitions:
        """Sample the part of a batch that is of the learner's own environments."""
        return self.replay.sample(self.config.batch_size - self._recorded_per_batch, self.generator)

    def _step_critics(self, batch: OfflineTransitions) -> tuple[float, float]:
        """Step the critics; return loss and mean value of the recorded part."""
        if self.gap is not None:
            self._step_gap(self.gap, batch)
        self.critics_optimizer.gradient.zero_()
        loss, values = self.critic_loss(batch)
        loss.backward()
        self._step(self.critics_optimizer, loss, "critics")
        update_target(self.target_critics, self.critics, self.config.target_update_rate)
        count = self._recorded_per_batch
        return float(loss.detach()), float(values.detach()[:, :count].mean()) if count else 0.0

    def _step_gap(self, gap: DynamicsGap, batch: OfflineTransitions) -> None:
        """Step the classifiers of the dynamics."""
        self.gap_optimizer.gradient.zero_()
        rows, count = torch.arange(len(batch)), self._recorded_per_batch
        loss = gap.loss(batch.take(rows[:count]), batch.take(rows[count:]), self.generator)
        loss.backward()
        self._step(self.gap_optimizer, loss, "classifiers of the dynamics")

    def _step_policy(self, batch: OfflineTransitions) -> float:
        """Step the policy; return the mean value of its actions."""
        self.policy_optimizer.gradient.zero_()
        self.critics.requires_grad_(False)
        loss, values = self.policy_loss(batch)
        loss.backward()
        self.critics.requires_grad_(True)
        self._step(self.policy_optimizer, loss, "policy")
        update_target(self.reference, self.policy, self.config.reference_update_rate)
        return float(values.detach().mean())

    def _smoothness_loss(self, change: Callable[[Tensor], Tensor], observation: Tensor) -> Tensor | float:
        """Return the mean over the states of the largest change near them, weighted; 0 without a weight."""
        if not self.config.smoothness_coef:
            return 0.0
        largest = largest_change(change, observation, self.config.smoothness_radius, self.generator)
        return self.config.smoothness_coef * largest.mean()

    def _step(self, optimizer: FlatAdam, loss: Tensor, name: str) -> None:
        take_finite_step(optimizer, float(loss.detach()), name, f"rlpd.learning_rate={self.config.learning_rate}")

    @torch.no_grad()
    def _distributions(self, policy: GaussianPolicy, observation: Tensor) -> GaussianBatch:
        return GaussianBatch.from_policy(policy, policy.normalizer(observation))
