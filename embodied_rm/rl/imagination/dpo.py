"""Direct preference optimization of a policy from pairs of chunks, beside imitation of demonstrations.

Sources: Rafailov et al., arXiv 2305.18290, equation 7, and for the imitation beside it Pang et al., arXiv 2404.19733:
without it the likelihood of preferred actions falls as well. The log probability of a chunk is the sum over its
actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from embodied_rm.errors import UserError, check_minimum
from embodied_rm.rl.imagination.chunks import ChunkPairs
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy, log_prob
from embodied_rm.run_folder import Reporter
from embodied_rm.threads import torch_threads

NUM_LAST_STEPS = 20  # steps at the end over which statistics are averaged


@dataclass(frozen=True, kw_only=True)
class DPOConfig:
    """Direct preference optimization with rewards of a world model."""

    num_chunks: int = 8  # chunks of a group, of which the best and the worst are compared
    groups_per_state: int = 4  # groups of chunks per recorded state, each of which gives one pair
    progress_weight: float = 1.0  # weight of the progress that the world model predicts after a chunk
    deviation_weight: float = 0.15  # weight of the closeness of a chunk to the demonstrated actions
    pessimism: float = 1.0  # standard deviations over the world models that are subtracted from the progress
    beta: float = 1.0  # how strongly the policy is kept near the cloned one
    imitation_coef: float = 1.0  # weight of the log probability of demonstrated actions
    steps: int = 300
    batch_size: int = 256  # pairs per batch, and demonstrated actions
    learning_rate: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        check_minimum(self, 2, "num_chunks")
        check_minimum(self, 1, "groups_per_state", "steps", "batch_size")
        check_minimum(self, 0, "progress_weight", "deviation_weight", "pessimism", "imitation_coef")
        if not (self.progress_weight or self.deviation_weight):
            raise UserError("progress_weight and deviation_weight are 0: no chunk is better than another")
        for name in ("beta", "learning_rate"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class DPOStats:
    """Results of direct preference optimization; means over the last steps."""

    pairs: int
    loss: float  # log 2 at the beginning
    accuracy: float  # share of pairs whose preferred chunk became more probable than the other, against the reference
    log_ratio_preferred: float  # log pi / pi_reference of preferred chunks, in nats


def dpo_loss(preferred: Tensor, rejected: Tensor, beta: float) -> Tensor:
    """Return -log sigmoid(beta (preferred - rejected)), averaged.

    Args:
        preferred: log pi(chunk) - log pi_reference(chunk) of the preferred chunks, float32 [P].
        rejected: The same of the rejected chunks.
        beta: How strongly the policy is kept near its reference, > 0.
    """
    return -functional.logsigmoid(beta * (preferred - rejected)).mean()


def chunk_log_prob(policy: GaussianPolicy, observation: Tensor, action: Tensor) -> Tensor:
    """Return the log probability [...] of chunks, observations [..., H, D] and actions [..., H, A]."""
    mean, log_std = policy(observation)
    return log_prob(action, mean, log_std).sum(-1)


@torch_threads(1)
def optimize_preferences(
    policy: GaussianPolicy, pairs: ChunkPairs, demonstrations: DemoPairs, config: DPOConfig, reporter: Reporter
) -> DPOStats:
    """Train the mean of a policy in place on pairs of chunks; what it was before is the reference.

    Args:
        policy: The policy.
        pairs: Pairs of chunks.
        demonstrations: Actions that are imitated beside.
        config: Settings.
        reporter: Output for the user.

    Raises:
        UserError: There is no pair, or the loss is not finite.
    """
    if not len(pairs):
        raise UserError("no state has a chunk that is better than another: the rewards of all chunks are equal")
    with torch.no_grad():
        reference_log_prob = chunk_log_prob(policy, pairs.observation, pairs.action)
    generator = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(policy.mlp.parameters(), lr=config.learning_rate, fused=True)
    rows_of_stats = []
    for _ in reporter.track(range(config.steps), "dpo", total=config.steps):
        rows = torch.randint(len(pairs), (config.batch_size,), generator=generator)
        observation, action = pairs.observation[rows], pairs.action[rows]
        preferred, rejected = (chunk_log_prob(policy, observation, action) - reference_log_prob[rows]).unbind(1)
        loss = dpo_loss(preferred, rejected, config.beta)
        total = loss + config.imitation_coef * imitation_loss(policy, demonstrations, config.batch_size, generator)
        if not total.isfinite():
            raise UserError(
                f"the loss became {float(total.detach())}: lower learning_rate={config.learning_rate} or "
                f"beta={config.beta}"
            )
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        optimizer.step()
        stats = torch.stack([loss, (preferred > rejected).float().mean(), preferred.mean()])
        rows_of_stats.append(stats.detach())
    last = torch.stack(rows_of_stats[-NUM_LAST_STEPS:]).mean(0).tolist()
    return DPOStats(pairs=len(pairs), loss=last[0], accuracy=last[1], log_ratio_preferred=last[2])


def imitation_loss(
    policy: GaussianPolicy, demonstrations: DemoPairs, batch_size: int, generator: torch.Generator
) -> Tensor:
    """Return minus the mean log probability of demonstrated actions, without its constant part."""
    observation, action = demonstrations.sample(batch_size, generator)
    mean, log_std = policy(observation)
    return 0.5 * ((action - mean) / log_std.detach().exp()).square().sum(-1).mean()
