"""Chunks of actions in the simulator, from the same states with other noise, and their true progress."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.types import Views
from embodied_sim.vec_env import TabletopVecEnv


@dataclass(frozen=True, kw_only=True)
class SimulatedChunks:
    """N chunks of H actions from each of S states."""

    embedding: Tensor  # float32 [S, W], of the first states, in a reward model
    noise: Tensor  # float32 [S, N, H, A], in standard deviations
    observation: Tensor  # float32 [S, N, H, D], in which the actions are taken
    action: Tensor  # float32 [S, N, H, A]
    progress: Tensor  # float32 [S, N], the simulator's, after the chunk


def simulate_chunks(
    envs: TabletopVecEnv,
    policy: GaussianPolicy,
    net: ProgressNet,
    *,
    rounds: int,
    num_chunks: int,
    horizon: int,
    seed: int,
) -> SimulatedChunks:
    """Return chunks of a policy at states that it visits, `rounds` of each environment.

    Args:
        envs: Environments that do not end on success; `rounds` * `horizon` steps are within their time limit.
        policy: The policy; it acts with its exploration noise.
        net: Reward model whose embeddings of the first states are returned.
        rounds: States per environment; the next one is where the last chunk of the one before ended.
        num_chunks: Chunks per state, N.
        horizon: Actions of a chunk, H.
        seed: Of the environments and the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    envs.reset(seed=seed)
    parts = []
    for _ in range(rounds):
        snapshot = envs.snapshot()
        embedding = embed_current_views(envs, net)
        noise = torch.randn(num_chunks, envs.num_envs, horizon, policy.spec.action_dim, generator=generator)
        chunks = []
        for chunk_noise in noise:
            observation = envs.restore(snapshot)
            chunks.append(_play_chunk(envs, policy, observation, chunk_noise))
        played = (torch.stack(column, 1) for column in zip(*chunks, strict=True))
        parts.append((embedding, noise.transpose(0, 1), *played))
    embedding, noise, observations, actions, progress = (torch.cat(column) for column in zip(*parts, strict=True))
    return SimulatedChunks(
        embedding=embedding, noise=noise, observation=observations, action=actions, progress=progress
    )


def embed_current_views(envs: TabletopVecEnv, net: ProgressNet) -> Tensor:
    """Return the embeddings of the current camera images, float32 [N, W]."""
    views = Views(names=tuple(envs.view_names), frames=envs.render_views())
    return net.reset(views, list(envs.instructions)).previous_embedding


def _play_chunk(
    envs: TabletopVecEnv, policy: GaussianPolicy, observation: np.ndarray, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the observations [N, H, D] and actions [N, H, A] of a chunk, and the true progress [N] after it."""
    observations, actions = [], []
    for step_noise in noise.unbind(1):
        observations.append(torch.from_numpy(observation))
        with torch.no_grad():
            mean, log_std = policy(observations[-1])
        actions.append(mean + log_std.exp() * step_noise)
        observation, _, _, _, infos = envs.step(actions[-1].clamp(-1, 1).numpy())
    progress = torch.from_numpy(infos["progress"].copy())
    return torch.stack(observations, 1), torch.stack(actions, 1), progress
