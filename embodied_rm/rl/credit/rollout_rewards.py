"""Rewards that are computed for a whole rollout, before advantages are estimated, and their state."""

from dataclasses import replace
from typing import Any

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
        self._contribution_estimator = (
            ContributionEstimator(critic_obs_dim, seed) if rule.required_input == "contribution" else None
        )
        loss = IMPLICIT_LOSSES.get(rule.required_input or "")
        self._implicit_reward = None if loss is None else ImplicitReward(policy, loss, seed)

    def compute_rewards(
        self, buffer: RolloutBuffer, policy: GaussianPolicy, dist: DistContext = SINGLE_PROCESS
    ) -> FloatArray:
        """Return the rewards [T, N] of a rollout, of all processes; the first one is of the imitated policy.

        If the rule needs reference episodes and none ended in the first rollout, `UserError` is raised.
        """
        transitions = Transitions(**dist.concat_env_axis(Transitions.stack(buffer.transitions).columns()))
        if self.rule.required_input == "reference_rewards" and not self.params.reference_rewards:
            self.params = replace(self.params, reference_rewards=final_potentials(transitions, buffer))
        if self._contribution_estimator is not None:
            contribution = self._contribution_estimator.estimate_contributions(buffer, transitions)
            transitions = replace(transitions, contribution=contribution)
        if self._implicit_reward is not None:
            column = str(self.rule.required_input)
            step_rewards: dict[str, Any] = {column: self._implicit_reward.step_rewards(buffer, transitions, policy)}
            transitions = replace(transitions, **step_rewards)
        rewards = self.rule.compute(transitions, self.params)
        if self.rule.required_input == "auxiliary_weight":
            weight, gamma, task_reward = self.params.auxiliary_weight, self.params.gamma, transitions.task_reward
            auxiliary = auxiliary_reward(transitions, self.params)
            weight = update_auxiliary_weight(weight, buffer, task_reward, auxiliary, policy, gamma)
            self.params = replace(self.params, auxiliary_weight=weight)
        return rewards

    def end_episodes(self) -> None:
        """End the running episodes without an outcome."""
        if self._contribution_estimator is not None:
            self._contribution_estimator.end_episodes()
        if self._implicit_reward is not None:
            self._implicit_reward.end_episodes()

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that later rewards depend on."""
        # float64 has the precision of Python numbers.
        names = ("reference_rewards", "auxiliary_weight")
        tensors = {name: torch.tensor(getattr(self.params, name), dtype=torch.float64) for name in names}
        if self._contribution_estimator is not None:
            tensors |= add_prefix("contribution_estimator", self._contribution_estimator.state_dict())
        if self._implicit_reward is not None:
            tensors |= add_prefix("implicit_reward", self._implicit_reward.state_dict())
        return tensors

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Restore the state that `state_dict` returned."""
        rewards, weight = tuple(tensors["reference_rewards"].tolist()), float(tensors["auxiliary_weight"])
        self.params = replace(self.params, reference_rewards=rewards, auxiliary_weight=weight)
        if self._contribution_estimator is not None:
            self._contribution_estimator.load_state_dict(strip_prefix("contribution_estimator", tensors), source)
        if self._implicit_reward is not None:
            self._implicit_reward.load_state_dict(strip_prefix("implicit_reward", tensors), source)


def final_potentials(transitions: Transitions, buffer: RolloutBuffer) -> tuple[float, ...]:
    """Return the final progress of the episodes that ended in a rollout; raise `UserError` if none ended."""
    valid_done = transitions.done & buffer.valid
    if not valid_done.any():
        raise UserError(
            f"rollout_steps={buffer.num_steps}: no episode of the imitated policy ended in the first rollout, and this "
            "reward rule compares with such ends; set it to at least the time limit of an episode"
        )
    return tuple(np.where(transitions.is_success, 1.0, transitions.next_potential)[valid_done].astype(float).tolist())
