"""Behavior cloning: a regression on the actions of demonstrations. Refinement starts from its policy."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import mse_loss

from embodied_rm.errors import DataError, UserError, check_minimum
from embodied_rm.rl.envs.embedding_obs import ObsMode
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, mirror
from embodied_rm.threads import torch_threads


@dataclass(frozen=True, kw_only=True)
class CloneConfig:
    """Behavior cloning."""

    num_demonstrations: int = 10  # number of episodes to imitate, drawn by `seed`
    steps: int = 1500
    batch_size: int = 256
    learning_rate: float = 1e-3  # peak of a cosine schedule that ends at 0
    hidden_sizes: tuple[int, ...] = (128, 128)
    obs_mode: ObsMode = "state"  # kind of observations of the policy: state, or proprio+embeddings
    log_std_init: float = -1.0
    """Log standard deviation of the exploration noise, for refinement; the regression fits only the mean."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_minimum(self, 1, "num_demonstrations", "steps", "batch_size")
        if not self.learning_rate > 0:
            raise UserError(f"learning_rate must be > 0, got {self.learning_rate}")


@dataclass(frozen=True, kw_only=True)
class CloneResult:
    """Size of the training data, and error of the policy on it."""

    transitions: int
    mse: float  # mean squared error of the actions after training, in squared action units
    initial_mse: float  # mean squared error before training


@torch_threads(1)
def clone(
    pairs: DemoPairs,
    config: CloneConfig,
    encoder_sha256: str = "",
    length_dims: int = 0,
    views: tuple[str, ...] = (),
    ignored_columns: tuple[int, ...] = (),
    mirrored_columns: tuple[int, ...] = (),
    mirrored_actions: tuple[int, ...] = (),
) -> tuple[GaussianPolicy, CloneResult]:
    """Train a policy on pairs of observation and action.

    See `PolicySpec` for the arguments after `config`. With `mirrored_columns`, mirror images of the pairs are imitated
    too.
    """
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        spec = PolicySpec(
            obs_dim=pairs.observation.shape[1],
            action_dim=pairs.action.shape[1],
            hidden=tuple(config.hidden_sizes),
            log_std_init=config.log_std_init,
            obs_mode=config.obs_mode,
            encoder_sha256=encoder_sha256,
            views=views,
            length_dims=length_dims,
            ignored_columns=ignored_columns,
            mirrored_columns=mirrored_columns,
            mirrored_actions=mirrored_actions,
        )
        policy, pairs = GaussianPolicy(spec), add_mirror_images(pairs, spec)
        policy.normalizer.fit(pairs.observation)
        initial_mse = _mse(policy, pairs)
        _fit_policy(policy, pairs, config)
    return policy, CloneResult(transitions=len(pairs), mse=_mse(policy, pairs), initial_mse=initial_mse)


def add_mirror_images(pairs: DemoPairs, spec: PolicySpec) -> DemoPairs:
    """Return the pairs and, if a policy knows what their mirror images are, those too."""
    if not spec.mirrored_columns:
        return pairs
    return DemoPairs(
        observation=torch.cat([pairs.observation, mirror(pairs.observation, spec.mirrored_columns)]),
        action=torch.cat([pairs.action, mirror(pairs.action, spec.mirrored_actions)]),
        weight=pairs.weight.repeat(2),
    )


def select_demonstrations(num_available: int, config: CloneConfig) -> list[int]:
    """Return the indices of the imitated demonstrations, in order; raise `DataError` if there are too few."""
    if num_available < config.num_demonstrations:
        raise DataError(f"{config.num_demonstrations} demonstrations requested, the dataset has {num_available}")
    return sorted(np.random.default_rng(config.seed).permutation(num_available)[: config.num_demonstrations].tolist())


def _fit_policy(policy: GaussianPolicy, pairs: DemoPairs, config: CloneConfig) -> None:
    optimizer = torch.optim.Adam(policy.mlp.parameters(), lr=config.learning_rate, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    for _ in range(config.steps):
        observation, action = pairs.sample(min(config.batch_size, len(pairs)))
        optimizer.zero_grad(set_to_none=True)
        mse_loss(policy(observation)[0], action).backward()
        optimizer.step()
        scheduler.step()


@torch.no_grad()
def _mse(policy: GaussianPolicy, pairs: DemoPairs) -> float:
    return float(mse_loss(policy(pairs.observation)[0], pairs.action))
