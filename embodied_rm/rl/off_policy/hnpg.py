"""PPO whose critic learns the values of recorded states too: hybrid natural policy gradient.

Source: Zhou et al., arXiv 2311.08384 ("HNPG"): the critic fits the returns of new episodes and, off policy, the Bellman
equation of the recorded transitions under the present policy. PPO's critic is a function of states. For a recorded
state it therefore fits the mean of Q-functions over an action of the present policy, which need no probabilities of the
recorded actions.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, load_into, strip_prefix
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.optimizer import FlatAdam, take_finite_step
from embodied_rm.rl.learner.policy import GaussianPolicy, ValueCritic
from embodied_rm.rl.learner.ppo import PPO, LossAndGradNorm, PPOConfig
from embodied_rm.rl.off_policy.off_policy_config import HNPGConfig
from embodied_rm.rl.off_policy.replay_buffer import rollout_transitions
from embodied_rm.rl.offline.critics import QEnsemble, td_target, update_target
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.threads import torch_threads

HIDDEN_SIZES, NUM_Q_FUNCTIONS = (128, 128), 2
TARGET_UPDATE_RATE = 0.02
TRANSITIONS_PER_UPDATE = 256  # half of them recorded, the other half of the last rollout
FIRST_UPDATES = 2000  # of the first rollout, when the Q-functions are untrained
MAX_GRAD_NORM = 10.0


class HNPG(PPO):
    """PPO with Q-functions that extend its critic to recorded states."""

    def __init__(
        self,
        policy: GaussianPolicy,
        critic: ValueCritic,
        recorded: OfflineTransitions,
        ppo: PPOConfig,
        config: HNPGConfig,
        seed: int,
        value_range: tuple[float, float] = (-inf, inf),
    ) -> None:
        """
        Args:
            policy: The policy, trained in place.
            critic: The critic of PPO, with the observations of the policy.
            recorded: Recorded transitions, with the rewards of the environment's rule.
            ppo: Settings of PPO; its discount is that of the rewards.
            config: Settings of the Q-functions.
            seed: Of the weights of the Q-functions, and of batches.
            value_range: Smallest and largest possible value; targets are kept in it.
        """
        super().__init__(policy, critic, ppo, torch.Generator().manual_seed(seed))
        self._recorded, self._hnpg, self._value_range = recorded, config, value_range
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.q_functions = QEnsemble(policy.normalizer, policy.spec.action_dim, HIDDEN_SIZES, NUM_Q_FUNCTIONS)
        self.target_q_functions = copy.deepcopy(self.q_functions).requires_grad_(False)
        self.q_optimizer = FlatAdam(self.q_functions, config.learning_rate, MAX_GRAD_NORM)
        # PPO's generator serves the actor, which may train at the same time.
        self.recorded_generator = torch.Generator().manual_seed(seed)
        self._num_rollouts = 0
        self._recorded_inputs = critic.inputs(recorded.observation, recorded.potential)
        self._recorded_values = torch.zeros(0)

    @property
    def num_recorded(self) -> int:
        """Number of recorded transitions."""
        return len(self._recorded)

    @torch_threads(1)
    def fit_recorded(self, rollout: RolloutBuffer, shaping_scale: float) -> None:
        """Train the Q-functions on recorded transitions and a rollout; call it before the update on that rollout.

        Args:
            rollout: The rollout of the present policy.
            shaping_scale: Weight of the potential in the shaped reward. The critic learns values without shaping.
        """
        recent = rollout_transitions(rollout)
        for _ in range(self._hnpg.updates if self._num_rollouts else FIRST_UPDATES):
            half = TRANSITIONS_PER_UPDATE // 2
            parts = [part.sample(half, self.recorded_generator) for part in (self._recorded, recent)]
            self._step_q_functions(OfflineTransitions.concat(parts))
        self._num_rollouts += 1
        recorded = self._recorded
        with torch.no_grad():
            observation = self.policy.normalizer(recorded.observation)
            values = self.q_functions(observation, self._sample_actions(observation)).mean(0)
            self._recorded_values = values.clamp(*self._value_range) + shaping_scale * recorded.potential

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the next update depends on but the recorded transitions, as named tensors."""
        tensors = {**super().state_dict(), "num_rollouts": torch.tensor(self._num_rollouts)}
        for name in ("q_functions", "target_q_functions", "q_optimizer"):
            tensors |= add_prefix(name, getattr(self, name).state_dict())
        return {**tensors, "recorded_generator": self.recorded_generator.get_state()}

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Restore the state of `state_dict`; raise `CheckpointError` with the name of `source` if it does not fit."""
        super().load_state_dict(tensors, source)
        for name in ("q_functions", "target_q_functions"):
            load_into(getattr(self, name), strip_prefix(name, tensors), str(source))
        self.q_optimizer.load_state_dict(strip_prefix("q_optimizer", tensors), source)
        self.recorded_generator.set_state(tensors["recorded_generator"])
        self._num_rollouts = int(tensors["num_rollouts"])

    def _sample_actions(self, normalized_obs: Tensor) -> Tensor:
        """Sample an action of the present policy for each observation, in the bounds of actions."""
        mean = self.policy.mlp(normalized_obs)
        noise = torch.randn(mean.shape, generator=self.recorded_generator)
        return (mean + self.policy.clamped_log_std.exp() * noise).clamp(-1, 1)

    def _step_q_functions(self, batch: OfflineTransitions) -> None:
        """Step the Q-functions towards the Bellman equation of the present policy."""
        normalizer = self.policy.normalizer
        with torch.no_grad():
            next_obs = normalizer(batch.next_observation)
            next_value = self.target_q_functions(next_obs, self._sample_actions(next_obs)).mean(0)
            target = td_target(batch.reward, batch.terminated, next_value, self.config.gamma)
            target = target.clamp(*self._value_range)
        self.q_optimizer.gradient.zero_()
        loss = (self.q_functions(normalizer(batch.observation), batch.action.clamp(-1, 1)) - target).square().mean()
        loss.backward()
        setting = f"hnpg.learning_rate={self._hnpg.learning_rate}"
        take_finite_step(self.q_optimizer, float(loss.detach()), "Q-functions", setting)
        update_target(self.target_q_functions, self.q_functions, TARGET_UPDATE_RATE)

    def _fit_critic(
        self, epochs: Sequence[tuple[Tensor, ...]], inputs: Tensor, target: Tensor
    ) -> list[LossAndGradNorm]:
        """Train the critic on as many recorded states as states of the rollout."""
        steps = []
        for rows in itertools.chain(*epochs):
            recorded = torch.randint(len(self._recorded), (len(rows),), generator=self.recorded_generator)
            weight = torch.ones(2 * len(rows), 1)
            weight[len(rows) :] = self._hnpg.recorded_coef
            both_inputs = torch.cat([inputs[rows], self._recorded_inputs[recorded]])
            both_targets = torch.cat([target[rows], self._recorded_values[recorded]])
            steps.append(self._step_critic(both_inputs, both_targets, len(rows), weight))
        return steps
