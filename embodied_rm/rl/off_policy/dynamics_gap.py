"""How far the dynamics of a simulator are from those of the world in which episodes were recorded, per transition.

Source: Niu et al., arXiv 2206.13464 ("H2O"), sections 4.1 and 4.2, and Eysenbach et al., arXiv 2006.13916 ("DARC") for
the two classifiers. One sees state, action and next state, the other state and action. The difference of their logits
is the log ratio of the two dynamics, since the shares of the states cancel.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from embodied_rm.rl.learner.policy import MIN_CHANGE_STD, ObservationNormalizer, mlp
from embodied_rm.rl.offline.transitions import OfflineTransitions

HIDDEN_SIZES = (128, 128)
INPUT_NOISE = 0.1
"""Standard deviation of the noise on the normalized inputs in training. Without it the classifiers tell few recorded
transitions apart by heart."""
MAX_LOG_RATIO = 10.0  # bound of the log ratio, nats


class DynamicsGap(nn.Module):
    """Classifiers of transitions: recorded, or of the learner's own environments."""

    def __init__(self, normalizer: ObservationNormalizer, recorded: OfflineTransitions) -> None:
        """
        Args:
            normalizer: Of observations, that of the policy; a copy is kept.
            recorded: Recorded transitions, whose changes of state are the unit of changes.
        """
        super().__init__()
        obs_dim, action_dim = recorded.observation.shape[1], recorded.action.shape[1]
        self.normalizer = copy.deepcopy(normalizer)  # stored beside the policy: a file holds no tensor twice
        self.change_normalizer = ObservationNormalizer(obs_dim)
        self.change_normalizer.fit(recorded.next_observation - recorded.observation, MIN_CHANGE_STD)
        inputs = obs_dim + normalizer.length_dims + action_dim
        self.without_next = mlp(inputs, HIDDEN_SIZES, 1, output_gain=0.01)
        self.with_next = mlp(inputs + obs_dim, HIDDEN_SIZES, 1, output_gain=0.01)

    def logits(self, batch: OfflineTransitions, noise: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits [B] of "recorded" with and without the next state; `noise` disturbs the inputs."""
        inputs = torch.cat([self.normalizer(batch.observation), batch.action.clamp(-1, 1)], dim=1)
        change = self.change_normalizer(batch.next_observation - batch.observation)
        inputs = torch.cat([inputs, change], dim=1)
        if noise is not None:
            inputs = inputs + INPUT_NOISE * torch.randn(inputs.shape, generator=noise)
        return self.with_next(inputs)[:, 0], self.without_next(inputs[:, : -change.shape[1]])[:, 0]

    def loss(self, recorded: OfflineTransitions, simulated: OfflineTransitions, noise: torch.Generator) -> Tensor:
        """Return the cross-entropy of both classifiers."""
        is_recorded = torch.cat([torch.ones(len(recorded)), torch.zeros(len(simulated))])
        logits = self.logits(OfflineTransitions.concat([recorded, simulated]), noise)
        return sum((binary_cross_entropy_with_logits(logit, is_recorded) for logit in logits), torch.zeros(()))

    @torch.no_grad()
    def log_ratio(self, batch: OfflineTransitions) -> Tensor:
        """Return log p(s' | s, a) of the recorded world minus that of the simulator, [B], in nats."""
        with_next, without_next = self.logits(batch)
        return (with_next - without_next).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def trust_weights(log_ratio: Tensor) -> Tensor:
    """Return the weights [B] of simulated transitions in the Bellman error: the ratio of the dynamics, at most 1."""
    return log_ratio.exp().clamp(max=1.0)


def simulated_value_penalty(simulated: Tensor, log_ratio: Tensor, recorded: Tensor) -> Tensor:
    """Return how far values of simulated actions are above recorded ones, more where the dynamics differ.

    Args:
        simulated: Values [E, B] of simulated transitions.
        log_ratio: Log ratio [B] of the dynamics at them.
        recorded: Values [E, C] of recorded transitions.

    Returns:
        The soft maximum of the first, weighted by the gap, minus the mean of the second, summed over the ensemble.
        Source: H2O, equation 6.
    """
    gap = (-log_ratio).clamp_min(0) + 1e-6
    soft_maximum = torch.logsumexp(simulated + (gap / gap.sum()).log(), dim=1)
    return (soft_maximum - recorded.mean(1)).sum()
