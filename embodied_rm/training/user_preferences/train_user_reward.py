"""Train the reward of several users, and measure how well a few answers describe a user (VPL, arXiv 2408.10075)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from embodied_rm.errors import UserError, check_minimum
from embodied_rm.run_folder import Reporter
from embodied_rm.threads import torch_threads
from embodied_rm.training.user_preferences.user_reward_net import ClipPairs, UserRewardNet

NUM_CONTEXTS = 20  # drawings of a user's answers, over which accuracies are means
NUM_USER_SAMPLES = 16  # samples of z, whose disagreement about a pair makes it worth asking
MAX_GRAD_NORM = 1.0


@dataclass(frozen=True, kw_only=True)
class UserRewardConfig:
    """Settings of the net and its training."""

    latent_size: int = 4
    hidden_sizes: tuple[int, ...] = (64, 64)
    steps: int = 1000
    batch_size: int = 64
    learning_rate: float = 0.001
    kl_coef: float = 0.001
    num_answers: int = 8

    def __post_init__(self) -> None:
        check_minimum(self, 0, "kl_coef")
        check_minimum(self, 1, "latent_size", "steps", "batch_size", "num_answers")
        if not self.hidden_sizes or min(self.hidden_sizes) < 1:
            raise UserError(f"hidden_sizes must be sizes >= 1, got {list(self.hidden_sizes)}")
        if not self.learning_rate > 0:
            raise UserError(f"learning_rate must be > 0, got {self.learning_rate}")


@torch_threads(1)
def train_user_reward(
    users: Sequence[ClipPairs], config: UserRewardConfig, latent_size: int, seed: int, reporter: Reporter
) -> UserRewardNet:
    """Maximize the evidence lower bound of the users' answers.

    Args:
        users: The answered pairs of each user.
        config: Settings.
        latent_size: Size of z; 0: one reward for all users.
        seed: Of the initial weights, and of the pairs and samples of each step.
        reporter: Output for the user.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = UserRewardNet(users[0].frames.shape[-1], latent_size, config.hidden_sizes)
    net.fit_normalizer(ClipPairs(frames=torch.cat([u.frames for u in users]), mask=torch.cat([u.mask for u in users])))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=config.learning_rate)
    for _ in reporter.track(range(config.steps), "user rewards", total=config.steps):
        loss = torch.stack([user_loss(net, pairs, config, generator) for pairs in users]).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), MAX_GRAD_NORM)
        optimizer.step()
    return net.requires_grad_(False)


def user_loss(net: UserRewardNet, pairs: ClipPairs, config: UserRewardConfig, generator: torch.Generator) -> Tensor:
    """Return the negative evidence lower bound of a batch of one user's answers, given a few others of them."""
    rows = torch.randperm(len(pairs), generator=generator)
    known, asked = rows[: config.num_answers], rows[config.num_answers :][: config.batch_size]
    mean, log_variance = net.posterior(pairs.select(known))
    user = mean + (0.5 * log_variance).exp() * torch.randn(mean.shape, generator=generator)
    surprise = functional.softplus(-net.log_odds(pairs.select(asked), user)).mean()
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
    return surprise + config.kl_coef * divergence


@torch_threads(1)
@torch.no_grad()
def measure_accuracy(
    net: UserRewardNet, pairs: ClipPairs, is_conflict: Tensor, num_answers: int, seed: int
) -> dict[str, float]:
    """Return how often a user's answers are predicted from `num_answers` others of them, mean over drawings.

    Args:
        net: The net.
        pairs: Answers of the user, which training has not seen.
        is_conflict: bool [B], whether another user answered the pair in the other way.
        num_answers: Answers that describe the user.
        seed: Of the drawings.

    Returns:
        "accuracy" of all predicted answers, and "conflicts", that of those in conflict.
    """
    generator = torch.Generator().manual_seed(seed)
    shares = []
    for _ in range(NUM_CONTEXTS):
        rows = torch.randperm(len(pairs), generator=generator)
        user, _ = net.posterior(pairs.select(rows[:num_answers]))
        shares.append(share_right(net, pairs, is_conflict, rows[num_answers:], user))
    accuracy, conflicts = torch.stack(shares).nanmean(0).tolist()
    return {"accuracy": accuracy, "conflicts": conflicts}


@torch_threads(1)
@torch.no_grad()
def measure_asking(
    net: UserRewardNet, pairs: ClipPairs, is_conflict: Tensor, num_answers: int, seed: int
) -> dict[str, float]:
    """Return the same as `measure_accuracy` for a user who is asked the most informative pairs, one after another."""
    generator = torch.Generator().manual_seed(seed)
    known: list[int] = []
    for _ in range(num_answers):
        variance = answer_variance(net, pairs, pairs.select(torch.tensor(known, dtype=torch.long)), generator)
        variance[known] = -1
        known.append(int(variance.argmax()))
    rows = torch.tensor([row for row in range(len(pairs)) if row not in known])
    user, _ = net.posterior(pairs.select(torch.tensor(known)))
    accuracy, conflicts = share_right(net, pairs, is_conflict, rows, user).tolist()
    return {"accuracy": accuracy, "conflicts": conflicts}


def answer_variance(net: UserRewardNet, pairs: ClipPairs, answers: ClipPairs, generator: torch.Generator) -> Tensor:
    """Return the variance [B] of each pair's predicted answer over what a user may be, given their answers so far.

    The pair with the largest variance tells most about the user.
    """
    mean, log_variance = net.posterior(answers)
    noise = torch.randn((NUM_USER_SAMPLES, len(mean)), generator=generator)
    users = mean + (0.5 * log_variance).exp() * noise
    return torch.stack([net.log_odds(pairs, user).sigmoid() for user in users]).var(0)


def share_right(net: UserRewardNet, pairs: ClipPairs, is_conflict: Tensor, rows: Tensor, user: Tensor) -> Tensor:
    """Return the share of right predictions [2]: of these rows, and of those of them in conflict."""
    right = (net.log_odds(pairs.select(rows), user) > 0).float()
    return torch.stack([right.mean(), right[is_conflict[rows]].mean()])
