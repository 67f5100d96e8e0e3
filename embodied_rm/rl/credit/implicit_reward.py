"""Step rewards that a policy implies: beta log(phi / pi), with phi trained on which episodes are better.

Sources: OPRL (online process reward learning), whose phi learns from pairs of episodes, and PRIME (arXiv 2502.01456),
whose phi learns from the outcome of each episode.
"""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from embodied_rm.checkpoint_io import add_prefix, load_into, strip_prefix
from embodied_rm.rewards.transitions import FloatArray, Transitions
from embodied_rm.rl.credit.episode_memory import CompleteEpisodes, EpisodeMemory
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy, log_prob
from embodied_rm.threads import torch_threads

BETA = 0.05  # reward per nat of the log ratio, in both papers
NUM_UPDATES = 40
LEARNING_RATE = 3e-3
NUM_PAIRS = 512  # pairs of episodes per update of `preferences`

ImplicitLoss = Literal["preferences", "outcomes"]


class ImplicitReward:
    """The policy phi, trained on the episodes of the last rollouts. Its noise is that of the policy that acts."""

    def __init__(
        self, policy: GaussianPolicy, loss: ImplicitLoss, seed: int, max_episode_steps: int | None = None
    ) -> None:
        """
        Args:
            policy: The imitated policy, from which phi starts.
            loss: What phi learns from.
            seed: Of the pairs of episodes.
            max_episode_steps: Time limit of an episode; None: not known.
        """
        self.policy, self._loss = copy.deepcopy(policy).cpu().requires_grad_(True), loss
        self._memory, self._generator = EpisodeMemory(max_episode_steps), torch.Generator().manual_seed(seed)

    @torch_threads(1)
    def step_rewards(self, buffer: RolloutBuffer, transitions: Transitions, policy: GaussianPolicy) -> FloatArray:
        """Train on a rollout of `policy` as well, and return beta log(phi / policy) [T, N] of its steps."""
        with torch.no_grad():
            self.policy.log_std.copy_(policy.log_std)
        columns = {
            "observation": buffer.observation,
            "action": buffer.action,
            "log_prob": buffer.log_prob,
            "outcome": transitions.is_success.astype(np.float32),
            "end_score": np.where(
                transitions.done, transitions.is_success + transitions.next_potential * ~transitions.is_success, 0
            ).astype(np.float32),
        }
        self._memory.add(columns, transitions.done, buffer.valid)
        self._fit()
        with torch.no_grad():
            rewards = self._log_ratio({name: torch.from_numpy(column) for name, column in columns.items()})
        return rewards.numpy()

    def end_episodes(self) -> None:
        """End the running episodes without an outcome."""
        self._memory.end_episodes()

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the rewards of the next rollout depend on."""
        return {
            **add_prefix("policy", self.policy.state_dict()),
            **add_prefix("rollouts", self._memory.state_dict()),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Restore the state that `state_dict` returned."""
        load_into(self.policy, strip_prefix("policy", tensors), str(source))
        self._memory.load_state_dict(strip_prefix("rollouts", tensors))
        self._generator.set_state(tensors["generator"])

    def _log_ratio(self, columns: dict[str, Tensor]) -> Tensor:
        """Return beta log(phi / pi) of steps [...]."""
        mean, log_std = self.policy(columns["observation"])
        ratio: Tensor = log_prob(columns["action"], mean, log_std) - columns["log_prob"]
        return BETA * ratio

    def _fit(self) -> None:
        episodes = self._memory.complete_episodes()
        if not episodes.count:
            return
        optimizer = torch.optim.Adam(self.policy.mlp.parameters(), lr=LEARNING_RATE, fused=True)
        for _ in range(NUM_UPDATES):
            sums = sum_per_episode(episodes, self._log_ratio(dict(episodes.columns)))
            loss = (
                self._preference_loss(episodes, sums) if self._loss == "preferences" else outcome_loss(episodes, sums)
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    def _preference_loss(self, episodes: CompleteEpisodes, sums: Tensor) -> Tensor:
        """Return -log sigmoid(sum of the better - sum of the worse episode), averaged over drawn pairs.

        A success is better than a failure, and of two failures the one with the larger final potential.
        """
        scores = sum_per_episode(episodes, episodes.columns["end_score"])
        first, second = torch.randint(episodes.count, (2, NUM_PAIRS), generator=self._generator)
        order = torch.sign(scores[first] - scores[second])
        losses = -logsigmoid(order * (sums[first] - sums[second])) * order.abs()
        return losses.sum() / order.abs().sum().clamp_min(1)


def sum_per_episode(episodes: CompleteEpisodes, values: Tensor) -> Tensor:
    """Return the sum over the steps of each episode, [count] from [B]."""
    return torch.zeros(episodes.count).index_add(0, episodes.index, values)


def outcome_loss(episodes: CompleteEpisodes, sums: Tensor) -> Tensor:
    """Return the cross-entropy of sigmoid(sum) with success, averaged over the episodes."""
    outcomes = sum_per_episode(episodes, episodes.columns["outcome"])
    return binary_cross_entropy_with_logits(sums, outcomes)
