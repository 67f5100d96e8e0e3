"""The actor and the critic: small MLPs over normalized observations, and their checkpoint."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from embodied_rm.build_limit import limit_build
from embodied_rm.checkpoint_io import load_into, load_tensors, save_tensors
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.stored_fields import check_fields
from embodied_rm.threads import torch_threads

ARCHITECTURE = "gaussian_policy"
MIN_STD = 1e-2
"""Smallest standard deviation of an observation feature, so that features that were nearly constant do not explode."""
MIN_CHANGE_STD = 1e-6  # of the change of a feature in one step, which may be far below a millimeter
ROUNDING = 1e-6  # of a number that is stored in single precision
MAX_NORMALIZED_OBS = 10.0
LENGTH_SCALE_M = 0.03
"""Scale of the detailed encoding of lengths, m: millimeters vanish in features that are normalized to half a meter."""
LOG_STD_RANGE = (-5.0, 1.0)
TUPLE_FIELDS = ("views", "ignored_columns", "mirrored_columns", "mirrored_actions")  # of specs; earlier ones lack some


def tanh(x: Tensor) -> Tensor:
    """Return tanh(x), any shape; differentiable if autograd records.

    On a CPU, PyTorch's tanh takes ten times as long as NumPy's, which is as exact: a quarter of an update.
    """
    if x.is_cpu and not (torch.is_grad_enabled() and x.requires_grad):
        return torch.from_numpy(np.tanh(x.detach().numpy()))
    return torch.tanh(x)


class Tanh(nn.Module):
    """`tanh` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return tanh(x)


@dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """Architecture of a policy, as stored in its checkpoint."""

    obs_dim: int
    action_dim: int
    hidden: tuple[int, ...] = (128, 128)
    log_std_init: float = -1.0  # logarithm of the exploration noise per action dimension, in action units ([-1, 1])
    obs_mode: str = "state"  # kind of observations, see `embodied_rm.rl.envs.embedding_obs.ObsMode`
    encoder_sha256: str = ""  # SHA-256 of the weights of the reward model whose embeddings are observed
    views: tuple[str, ...] = ()  # cameras whose images are embedded
    length_dims: int = 0
    """Number of first observation columns that are lengths in m (or angles in rad), with a detailed encoding near 0."""
    ignored_columns: tuple[int, ...] = ()
    """Observation columns that the policy does not see, and neither do critics that share its normalization."""
    mirrored_columns: tuple[int, ...] = ()
    """Observation columns whose sign a mirror image changes; none: there is no mirror image to learn from."""
    mirrored_actions: tuple[int, ...] = ()  # components of actions whose sign it changes

    def __post_init__(self) -> None:
        if min(self.obs_dim, self.action_dim, *self.hidden) < 1:
            raise UserError(f"policy sizes must be >= 1, got {self}")
        if not 0 <= self.length_dims <= self.obs_dim:
            raise UserError(f"length_dims must be in [0, {self.obs_dim}], got {self.length_dims}")
        if len(set(self.ignored_columns)) == self.obs_dim:
            raise UserError(f"ignored_columns must leave the policy some of its {self.obs_dim} columns")
        sizes = {"ignored_columns": self.obs_dim, "mirrored_columns": self.obs_dim, "mirrored_actions": self.action_dim}
        for name, size in sizes.items():
            if not all(0 <= column < size for column in getattr(self, name)):
                raise UserError(f"{name} must be some of the columns 0 to {size - 1}, got {list(getattr(self, name))}")
        if not LOG_STD_RANGE[0] <= self.log_std_init <= LOG_STD_RANGE[1]:
            raise UserError(f"log_std_init must be in {list(LOG_STD_RANGE)}, got {self.log_std_init}")


class ObservationNormalizer(nn.Module):
    """Returns (x - mean) / std, clamped, and tanh(x / `LENGTH_SCALE_M`) of the first `length_dims` columns.

    The second encoding distinguishes offsets of millimeters. The statistics are fitted once, on demonstrations, and are
    stored in the checkpoint. Ignored columns are 0 in both encodings.
    """

    mean: Tensor
    std: Tensor
    hidden: Tensor

    def __init__(self, size: int, length_dims: int = 0, ignored_columns: Sequence[int] = ()) -> None:
        super().__init__()
        self.length_dims = length_dims
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.has_ignored = bool(ignored_columns)
        self.register_buffer("hidden", torch.zeros(size, dtype=torch.bool), persistent=False)
        self.hidden[list(ignored_columns)] = True

    def fit(self, observations: Tensor, min_std: float = MIN_STD) -> None:
        """Set mean and standard deviation to those of observations [B, D]."""
        observations = self._hide(observations)
        self.mean.copy_(observations.mean(0))
        self.std.copy_(observations.std(0, correction=0).clamp_min(min_std))

    def forward(self, observation: Tensor) -> Tensor:
        """Return the normalized observation [..., size + length_dims]."""
        observation = self._hide(observation)
        normalized = ((observation - self.mean) / self.std).clamp(-MAX_NORMALIZED_OBS, MAX_NORMALIZED_OBS)
        if not self.length_dims:
            return normalized
        return torch.cat([normalized, tanh(observation[..., : self.length_dims] / LENGTH_SCALE_M)], dim=-1)

    def _hide(self, observation: Tensor) -> Tensor:
        """Return the observation [..., size] with 0 in the ignored columns."""
        return observation.masked_fill(self.hidden, 0.0) if self.has_ignored else observation


class GaussianPolicy(nn.Module):
    """A diagonal Gaussian policy with a state-independent standard deviation; the environment clips actions."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        self.spec = spec
        self.normalizer = ObservationNormalizer(spec.obs_dim, spec.length_dims, spec.ignored_columns)
        self.mlp = mlp(spec.obs_dim + spec.length_dims, spec.hidden, spec.action_dim, output_gain=0.01)
        self.log_std = nn.Parameter(torch.full((spec.action_dim,), float(spec.log_std_init)))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.log_std.device

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean [B, A] and log standard deviation [A] of the action for observations [B, D]."""
        return self.mlp(self.normalizer(observation)), self.clamped_log_std

    @property
    def clamped_log_std(self) -> Tensor:
        """Log standard deviation [A] of the action."""
        return self.log_std.clamp(*LOG_STD_RANGE)

    @torch_threads(1)
    @torch.no_grad()
    def act(self, observation: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
        """Return the mean action [N, A] for observations [N, D]."""
        return self(torch.as_tensor(observation, dtype=torch.float32, device=self.device))[0].cpu().numpy()

    @torch_threads(1)
    @torch.no_grad()
    def sample(
        self, observation: npt.NDArray[np.floating], generator: torch.Generator, dist: DistContext = SINGLE_PROCESS
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Sample actions [N, A] for observations [N, D], and return their log probabilities [N].

        The generator is on the CPU, for any device of the weights; it draws for all processes.
        """
        mean, log_std = self(torch.as_tensor(observation, dtype=torch.float32, device=self.device))
        noise = torch.randn(dist.world_size * len(mean), mean.shape[1], generator=generator)
        action = mean + log_std.exp() * noise[dist.local_rows(len(mean))].to(self.device)
        return action.cpu().numpy(), log_prob(action, mean, log_std).cpu().numpy()


class ValueCritic(nn.Module):
    """Values [B] of the task without shaping, from observations [B, D] and current potentials [B].

    The potential is part of the state that is rewarded, and indicates how near success is.
    """

    def __init__(self, obs_dim: int, hidden: tuple[int, ...], length_dims: int = 0) -> None:
        super().__init__()
        self.normalizer = ObservationNormalizer(obs_dim, length_dims)
        self.mlp = mlp(obs_dim + length_dims + 1, hidden, 1, output_gain=1.0)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.normalizer.mean.device

    def forward(self, observation: Tensor, potential: Tensor) -> Tensor:
        return self.mlp(self.inputs(observation, potential)).squeeze(-1)

    def inputs(self, observation: Tensor, potential: Tensor) -> Tensor:
        """Return the inputs of the network, [B, D + length_dims + 1]."""
        return torch.cat([self.normalizer(observation), potential[:, None]], dim=1)


def mlp(inputs: int, hidden: tuple[int, ...], outputs: int, output_gain: float) -> nn.Sequential:
    """Return tanh layers with orthogonal weights (Andrychowicz et al., arXiv 2006.05990, choices C24 and C56)."""
    sizes = [inputs, *hidden, outputs]
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        is_last = i == len(hidden)
        linear = nn.Linear(fan_in, fan_out)
        nn.init.orthogonal_(linear.weight, output_gain if is_last else math.sqrt(2))
        nn.init.zeros_(linear.bias)
        layers += [linear] if is_last else [linear, Tanh()]
    return nn.Sequential(*layers)


def mirror(values: Tensor, columns: Sequence[int]) -> Tensor:
    """Return observations or actions [..., D] with the opposite sign in some columns."""
    signs = torch.ones(values.shape[-1], device=values.device)
    signs[list(columns)] = -1.0
    return values * signs


def log_prob(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log density [B] of actions [B, A] under diagonal Gaussians."""
    scaled = (action - mean) * torch.exp(-log_std)
    return (-0.5 * scaled.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def gaussian_kl(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    """Return the KL divergence [B] of the first diagonal Gaussian from the second, in nats."""
    ratio = torch.exp(2 * (log_std - other_log_std))
    distance = (mean - other_mean).square() * torch.exp(-2 * other_log_std)
    return 0.5 * (ratio + distance - 1 - 2 * (log_std - other_log_std)).sum(-1)


def save_policy(folder: Path | str, policy: GaussianPolicy, **manifest: Any) -> None:
    """Write the policy as a checkpoint folder; `manifest` has further entries of its manifest."""
    save_tensors(folder, policy.state_dict(), {**manifest, "architecture": ARCHITECTURE, "spec": asdict(policy.spec)})


def load_policy(folder: Path | str) -> GaussianPolicy:
    """Read a policy of `save_policy`; raise `CheckpointError` with the file name if it is invalid."""
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    with limit_build(tensors, folder):
        policy = GaussianPolicy(parse_spec(manifest.get("spec"), folder))
    load_into(policy, tensors, folder)
    least_std = float(policy.normalizer.std.min())
    if least_std < MIN_STD * (1 - ROUNDING):
        raise CheckpointError(f"{folder}: normalizer.std must be >= {MIN_STD}, its least is {least_std:g}")
    return policy


def parse_spec(stored: Any, source: Path | str) -> PolicySpec:
    """Return the `PolicySpec` of a manifest; raise `CheckpointError` if it is invalid."""
    try:
        tuples = {name: tuple(stored.get(name, ())) for name in TUPLE_FIELDS}
        spec = PolicySpec(**{**stored, "hidden": tuple(stored["hidden"]), **tuples})
        check_fields(spec)
        return spec
    except (TypeError, KeyError, AttributeError, UserError) as error:
        raise CheckpointError(f"{source}: the manifest holds no policy spec ({error})") from None
