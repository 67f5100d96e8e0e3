"""Behaviour cloning: the demonstrations' actions as a regression, and the policy that refinement starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import mse_loss

from embodied_rm.errors import DataError, UserError
from embodied_rm.rl.envs.seeing import Sees
from embodied_rm.rl.learner.imitation import Pairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.threads import one_thread


@dataclass(frozen=True, kw_only=True)
class CloneConfig:
    """Behaviour cloning."""

    demonstrations: int = 10
    """How many episodes to imitate, drawn by `seed`."""
    steps: int = 1500
    batch: int = 256
    lr: float = 1e-3
    """Peak of a cosine schedule that ends at 0."""
    hidden: tuple[int, ...] = (128, 128)
    sees: Sees = "state"
    """What the states of the episodes are."""
    log_std_init: float = -1.0
    """Exploration noise that refinement starts with; the regression fits the mean only."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("demonstrations", "steps", "batch"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not self.lr > 0:
            raise UserError(f"lr must be > 0, got {self.lr}")


@dataclass(frozen=True, kw_only=True)
class CloneFit:
    """What the cloning saw and how close it came."""

    transitions: int
    mse: float
    """Mean squared error of the imitated actions, in squared action units."""
    mse_first: float
    """The same before training."""


@one_thread()
def clone(
    pairs: Pairs, config: CloneConfig, encoder_sha256: str = "", lengths: int = 0, views: tuple[str, ...] = ()
) -> tuple[GaussianPolicy, CloneFit]:
    """Fit a policy to what was done in what was seen; `encoder_sha256`, `lengths` and `views`: see `PolicySpec`."""
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        policy = GaussianPolicy(
            PolicySpec(
                obs_dim=pairs.observation.shape[1],
                action_dim=pairs.action.shape[1],
                hidden=tuple(config.hidden),
                log_std_init=config.log_std_init,
                sees=config.sees,
                encoder_sha256=encoder_sha256,
                views=views,
                lengths=lengths,
            )
        )
        policy.normaliser.fit(pairs.observation)
        before = _mse(policy, pairs)
        _regress(policy, pairs, config)
    return policy, CloneFit(transitions=len(pairs), mse=_mse(policy, pairs), mse_first=before)


def choose(count: int, config: CloneConfig) -> list[int]:
    """Which of `count` demonstrations are imitated, in order. Raises `DataError` when there are too few."""
    if count < config.demonstrations:
        raise DataError(f"{config.demonstrations} demonstrations asked for, the dataset holds {count}")
    return sorted(np.random.default_rng(config.seed).permutation(count)[: config.demonstrations].tolist())


def _regress(policy: GaussianPolicy, pairs: Pairs, config: CloneConfig) -> None:
    optimiser = torch.optim.Adam(policy.mlp.parameters(), lr=config.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    for _ in range(config.steps):
        observation, action = pairs.draw(min(config.batch, len(pairs)))
        optimiser.zero_grad(set_to_none=True)
        mse_loss(policy(observation)[0], action).backward()
        optimiser.step()
        schedule.step()


@torch.no_grad()
def _mse(policy: GaussianPolicy, pairs: Pairs) -> float:
    return float(mse_loss(policy(pairs.observation)[0], pairs.action))
