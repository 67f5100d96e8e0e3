"""Rewards that are computed for a whole rollout, before advantages are estimated, and their state."""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, strip_prefix
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.rewards.episodic_rules import auxiliary_reward
from embodied_rm.rewards.rules import RewardRule
from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions
from embodied_rm.rl.credit.attribution import ContributionEstimator
from embodied_rm.rl.credit.auxiliary_weight import update_auxiliary_weight
from embodied_rm.rl.credit.implicit_reward import ImplicitLoss, ImplicitReward
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy

IMPLICIT_LOSSES: dict[str, ImplicitLoss] = {"preference_reward": "preferences", "outcome_reward": "outcomes"}
"""Input of a rule that a policy implies -> what that policy learns from."""


class StepRewardEstimator(Protocol):
    """Learns the rewards of single steps from whole episodes."""

    def step_rewards(self, buffer: RolloutBuffer, transitions: Transitions, policy: GaussianPolicy) -> FloatArray:
        """Train on a rollout of `policy` as well, and return the rewards [T, N] of its steps."""
        ...

    def end_episodes(self) -> None:
        """End the running episodes without an outcome."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the rewards of the next rollout depend on."""
        ...

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Restore the state that `state_dict` returned."""
        ...


def make_estimator(
    rule: RewardRule, params: RewardParams, policy: GaussianPolicy, critic_obs_dim: int, seed: int
) -> StepRewardEstimator | None:
    """Return the estimator of the input that a rule requires; None if it requires none that is learned."""
    if rule.required_input == "contribution":
        return ContributionEstimator(critic_obs_dim, seed, params.max_episode_steps)
    if rule.required_input in IMPLICIT_LOSSES:
        return ImplicitReward(policy, IMPLICIT_LOSSES[rule.required_input], seed, params.max_episode_steps)
    return None


class RolloutRewards:
    """Computes the rewards of rollouts by a rule that is not known step by step."""

    def __init__(
        self, rule: RewardRule, params: RewardParams, policy: GaussianPolicy, critic_obs_dim: int, seed: int
    ) -> None:
        """
        Args:
            rule: The rule.
            params: Its inputs that are the same for all transitions.
            policy: The imitated policy.
            critic_obs_dim: Size of the observations of the critic.
            seed: Of the networks that estimate inputs of the rule.
        """
        self.rule, self.params = rule, params
        self.estimator = make_estimator(rule, params, policy, critic_obs_dim, seed)

    def compute_rewards(
        self, buffer: RolloutBuffer, policy: GaussianPolicy, dist: DistContext = SINGLE_PROCESS
    ) -> FloatArray:
        """Return the rewards [T, N] of a rollout, of all processes; the first one is of the imitated policy.

        If the rule needs reference episodes and none ended in the first rollout, `UserError` is raised.
        """
        transitions = Transitions(**dist.concat_env_axis(Transitions.stack(buffer.transitions).columns()))
        if self.rule.required_input == "reference_rewards" and not self.params.reference_rewards:
            self.params = replace(self.params, reference_rewards=final_potentials(transitions, buffer))
        if self.estimator is not None:
            column: dict[str, Any] = {
                str(self.rule.required_input): self.estimator.step_rewards(buffer, transitions, policy)
            }
            transitions = replace(transitions, **column)
        rewards = self.rule.compute(transitions, self.params)
        if self.rule.required_input == "auxiliary_weight":
            weight, gamma, task_reward = self.params.auxiliary_weight, self.params.gamma, transitions.task_reward
            auxiliary = auxiliary_reward(transitions, self.params)
            weight = update_auxiliary_weight(weight, buffer, task_reward, auxiliary, policy, gamma)
            self.params = replace(self.params, auxiliary_weight=weight)
        return rewards

    def end_episodes(self) -> None:
        """End the running episodes without an outcome."""
        if self.estimator is not None:
            self.estimator.end_episodes()

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that later rewards depend on."""
        # float64 has the precision of Python numbers.
        names = ("reference_rewards", "auxiliary_weight")
        tensors = {name: torch.tensor(getattr(self.params, name), dtype=torch.float64) for name in names}
        if self.estimator is not None:
            tensors |= add_prefix("estimator", self.estimator.state_dict())
        return tensors

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Restore the state that `state_dict` returned."""
        rewards, weight = tuple(tensors["reference_rewards"].tolist()), float(tensors["auxiliary_weight"])
        self.params = replace(self.params, reference_rewards=rewards, auxiliary_weight=weight)
        if self.estimator is not None:
            self.estimator.load_state_dict(strip_prefix("estimator", tensors), source)


def final_potentials(transitions: Transitions, buffer: RolloutBuffer) -> tuple[float, ...]:
    """Return the final progress of the episodes that ended in a rollout; raise `UserError` if none ended."""
    valid_done = transitions.done & buffer.valid
    if not valid_done.any():
        raise UserError(
            f"rollout_steps={buffer.num_steps}: no episode of the imitated policy ended in the first rollout, and this "
            "reward rule compares with such ends; set it to at least the time limit of an episode"
        )
    return tuple(np.where(transitions.is_success, 1.0, transitions.next_potential)[valid_done].astype(float).tolist())
