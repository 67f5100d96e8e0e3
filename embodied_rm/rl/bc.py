"""Behaviour cloning: the demonstrations' actions as a regression, and the policy that refinement starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from embodied_rm.errors import DataError, UserError
from embodied_rm.rl.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.seeing import Sees
from embodied_rm.rl.threads import one_thread
from embodied_rm.types import Array, Episode


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

    demonstrations: int
    transitions: int
    """Those that weigh anything."""
    mse: float
    """Mean squared error of the imitated actions over these transitions, in squared action units."""
    mse_first: float
    """The same before training."""


@one_thread()
def clone(
    episodes: Sequence[Episode], config: CloneConfig, weights: Sequence[Array] | None = None
) -> tuple[GaussianPolicy, CloneFit]:
    """Fit a policy to the (state, action) pairs of `config.demonstrations` of the episodes.

    `weights` [T] of each episode: how often each of its pairs is drawn; None: all alike. Raises `DataError` when an
    episode has no state or action, there are too few episodes, or nothing of them weighs anything.
    """
    rows = _choose(episodes, config)
    chosen = [episodes[row] for row in rows]
    state = torch.as_tensor(np.concatenate([e.state for e in chosen]), dtype=torch.float32)
    action = torch.as_tensor(np.concatenate([e.action for e in chosen]), dtype=torch.float32)
    weight = torch.ones(len(state)) if weights is None else torch.from_numpy(np.concatenate([weights[r] for r in rows]))
    counted = weight > 0
    if not counted.any():
        raise DataError(f"no moment of these {len(chosen)} demonstrations makes progress: there is nothing to imitate")
    state, action, weight = state[counted], action[counted], weight[counted]
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        policy = GaussianPolicy(
            PolicySpec(
                obs_dim=state.shape[1],
                action_dim=action.shape[1],
                hidden=tuple(config.hidden),
                log_std_init=config.log_std_init,
                sees=config.sees,
            )
        )
        policy.normaliser.fit(state)
        before = _mse(policy, state, action)
        _regress(policy, state, action, weight, config)
    return policy, CloneFit(
        demonstrations=len(chosen), transitions=len(state), mse=_mse(policy, state, action), mse_first=before
    )


def _choose(episodes: Sequence[Episode], config: CloneConfig) -> list[int]:
    """The rows of the demonstrations that are imitated."""
    if len(episodes) < config.demonstrations:
        raise DataError(f"{config.demonstrations} demonstrations asked for, the dataset holds {len(episodes)}")
    order = np.random.default_rng(config.seed).permutation(len(episodes))[: config.demonstrations]
    chosen = sorted(order.tolist())
    for episode in (episodes[row] for row in chosen):
        for name, column in (("state", episode.state), ("action", episode.action)):
            if column is None or column.ndim != 2 or not np.isfinite(column).all():
                raise DataError(f"{episode.name}: cloning needs a finite {name} [T, D] in every frame")
    return chosen


def _regress(policy: GaussianPolicy, state: Tensor, action: Tensor, weight: Tensor, config: CloneConfig) -> None:
    alike = bool((weight == weight[0]).all())
    optimiser = torch.optim.Adam(policy.mlp.parameters(), lr=config.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    for _ in range(config.steps):
        count = min(config.batch, len(state))
        rows = torch.randint(len(state), (count,)) if alike else torch.multinomial(weight, count, replacement=True)
        optimiser.zero_grad(set_to_none=True)
        mse_loss(policy(state[rows])[0], action[rows]).backward()
        optimiser.step()
        schedule.step()


@torch.no_grad()
def _mse(policy: GaussianPolicy, state: Tensor, action: Tensor) -> float:
    return float(mse_loss(policy(state)[0], action))
