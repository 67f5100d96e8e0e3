"""The reward of a frame for a user, whom a few of their answers describe.

Source: Poddar et al., Personalizing Reinforcement Learning from Human Feedback with Variational Preference Learning
(VPL, arXiv 2408.10075). An encoder turns answers into a Gaussian over a latent vector z, and the reward depends on z.
One reward for all users would average what they prefer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from embodied_rm.checkpoint_io import load_into, load_tensors, save_tensors
from embodied_rm.errors import CheckpointError

ARCHITECTURE = "user_reward"
MIN_STD = 1e-3  # of a column of the frames


@dataclass(frozen=True, kw_only=True)
class ClipPairs:
    """B pairs of clips, the preferred one first: the frames, and which of them are of the clip."""

    frames: Tensor  # float32 [B, 2, T, D]
    mask: Tensor  # float32 [B, 2, T], 1 for a frame of the clip, 0 behind its end

    def __len__(self) -> int:
        return len(self.frames)

    def select(self, rows: Tensor) -> ClipPairs:
        """Select pairs."""
        return ClipPairs(frames=self.frames[rows], mask=self.mask[rows])


class UserRewardNet(nn.Module):
    """Encoder of a user, and reward of a frame for that user."""

    mean: Tensor
    std: Tensor
    length: Tensor

    def __init__(self, frame_dim: int, latent_dim: int, hidden: Sequence[int]) -> None:
        """`latent_dim`: size of z; 0: one reward for all users."""
        super().__init__()
        self.latent_dim = latent_dim
        self.sizes = {"frame_dim": frame_dim, "latent_dim": latent_dim, "hidden": list(hidden)}
        self.register_buffer("mean", torch.zeros(frame_dim))
        self.register_buffer("std", torch.ones(frame_dim))
        self.register_buffer("length", torch.ones(()))  # mean number of frames of a clip
        if latent_dim:
            self.clip_encoder = make_mlp(frame_dim, hidden, hidden[-1])
            self.user_encoder = make_mlp(2 * hidden[-1], hidden, 2 * latent_dim)
        self.reward = make_mlp(frame_dim + latent_dim, hidden, 1)

    def fit_normalizer(self, pairs: ClipPairs) -> None:
        """Set the statistics of the frames."""
        frames = pairs.frames[pairs.mask > 0]
        self.mean.copy_(frames.mean(0))
        self.std.copy_(frames.std(0, correction=0).clamp_min(MIN_STD))
        self.length.copy_(pairs.mask.sum(-1).mean())

    def posterior(self, answers: ClipPairs) -> tuple[Tensor, Tensor]:
        """Return mean and log variance [latent_dim] of z for a user; without answers, those of the prior."""
        if not len(answers) or not self.latent_dim:
            return torch.zeros(self.latent_dim), torch.zeros(self.latent_dim)
        clips = self._sum_frames(self.clip_encoder(self._normalize(answers.frames)), answers.mask)
        mean, log_variance = self.user_encoder(clips.flatten(1)).mean(0).chunk(2)
        return mean, log_variance

    def log_odds(self, pairs: ClipPairs, user: Tensor) -> Tensor:
        """Return the log odds [B] that a user [latent_dim] prefers the first clip (Bradley-Terry of the returns)."""
        returns = self._sum_frames(self.frame_rewards(pairs.frames, user)[..., None], pairs.mask)[..., 0]
        return returns[:, 0] - returns[:, 1]

    def frame_rewards(self, frames: Tensor, user: Tensor) -> Tensor:
        """Return the reward [...] of frames [..., frame_dim] for a user [latent_dim]."""
        normalized = self._normalize(frames)
        rewards: Tensor = self.reward(torch.cat([normalized, user.expand(*frames.shape[:-1], -1)], dim=-1))
        return rewards[..., 0]

    def _normalize(self, frames: Tensor) -> Tensor:
        return (frames - self.mean) / self.std

    def _sum_frames(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return the sum over the frames of each clip, in lengths of a mean clip: a short clip sums less."""
        return (values * mask[..., None]).sum(-2) / self.length


def make_mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """Return a network with tanh units."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.Tanh()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def save_user_reward(folder: Path | str, net: UserRewardNet) -> None:
    """Write a net as a checkpoint folder."""
    save_tensors(folder, net.state_dict(), {"architecture": ARCHITECTURE, "sizes": net.sizes})


def load_user_reward(folder: Path | str) -> UserRewardNet:
    """Read a net of `save_user_reward`; raise `CheckpointError` with the file name if it is invalid."""
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    try:
        net = UserRewardNet(**manifest["sizes"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{folder}: the manifest describes no reward of users ({error})") from None
    load_into(net, tensors, folder)
    return net.requires_grad_(False)
