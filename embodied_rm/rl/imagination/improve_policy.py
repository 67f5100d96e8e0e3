"""A policy that is improved in a world model of recordings: pairs of imagined chunks, then preference optimization."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from embodied_rm.errors import DataError, UserError
from embodied_rm.rl.imagination.chunks import ChunkPairs, best_and_worst, imagine_chunks, rate_chunks
from embodied_rm.rl.imagination.dpo import DPOConfig, DPOStats, optimize_preferences
from embodied_rm.rl.imagination.latent_episodes import LatentEpisode, Windows, WindowSampler
from embodied_rm.rl.imagination.world_model import WorldModel
from embodied_rm.rl.learner.demo_pairs import DemoPairs, check_columns
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode

STATES_PER_BLOCK = 512  # states from which chunks are imagined at a time


def imagined_pairs(
    model: WorldModel,
    policy: GaussianPolicy,
    demonstrations: Sequence[LatentEpisode],
    horizon: int,
    config: DPOConfig,
) -> ChunkPairs:
    """Return the best and the worst chunk of every group of chunks of the policy, at all states of the demonstrations.

    Raises:
        DataError: No demonstration has as many transitions as the horizon.
    """
    sampler = WindowSampler(demonstrations, horizon)
    starts = sampler.starts.repeat(config.groups_per_state)
    shape = (len(starts), config.num_chunks, horizon, policy.spec.action_dim)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(config.seed))
    blocks = zip(starts.split(STATES_PER_BLOCK), noise.split(STATES_PER_BLOCK), strict=True)
    return ChunkPairs.concat([
        _compare_chunks(model, policy, sampler.windows(rows), block_noise, config) for rows, block_noise in blocks
    ])  # fmt: skip


def _compare_chunks(
    model: WorldModel, policy: GaussianPolicy, windows: Windows, noise: Tensor, config: DPOConfig
) -> ChunkPairs:
    """Return the best and the worst of the chunks that the policy takes with a noise [S, N, H, A] from S windows."""
    chunks = imagine_chunks(model, policy, windows.observation[:, 0], windows.embedding[:, 0], noise)
    reward = rate_chunks(
        chunks,
        windows,
        progress_weight=config.progress_weight,
        deviation_weight=config.deviation_weight,
        pessimism=config.pessimism,
    )
    return best_and_worst(chunks.observation, chunks.action, reward)


def improve_policy(
    policy: GaussianPolicy,
    model: WorldModel,
    demonstrations: Sequence[LatentEpisode],
    horizon: int,
    config: DPOConfig,
    reporter: Reporter,
) -> tuple[GaussianPolicy, DPOStats]:
    """Return a policy that prefers the chunks that a world model rates best, and statistics of its training.

    Args:
        policy: The cloned policy; it does not change.
        model: World model of all recordings.
        demonstrations: Recorded successes: where chunks start, and what is imitated beside.
        horizon: Actions of a chunk.
        config: Settings.
        reporter: Output for the user.

    Raises:
        DataError: All demonstrations are shorter than a chunk.
        UserError: All chunks are equally good, or the loss is not finite.
    """
    improved = copy.deepcopy(policy)
    pairs = imagined_pairs(model, policy, demonstrations, horizon, config)
    stats = optimize_preferences(improved, pairs, make_imitated(demonstrations), config, reporter)
    return improved, stats


def check_state_policy(policy: GaussianPolicy, name: object) -> None:
    """Raise `UserError` if a policy observes images: a world model predicts what the policy observes."""
    if policy.spec.obs_mode != "state":
        raise UserError(f"{name}: obs_mode={policy.spec.obs_mode}; a world model is for policies with obs_mode=state")


def check_recordings(policy: GaussianPolicy, episodes: Sequence[Episode], horizon: int) -> None:
    """Raise `DataError` unless the policy can be improved on these recordings. Their videos are not read.

    It cannot if there are none, if one lacks state or action, if these have other sizes than those of the policy, or
    if no success has as many transitions as the horizon.
    """
    if not episodes:
        raise DataError("there are no episodes to learn from")
    check_columns(episodes, "a world model")
    sizes = {"state": policy.spec.obs_dim, "action": policy.spec.action_dim}
    for episode in episodes:
        for name, expected in sizes.items():
            size = getattr(episode, name).shape[1]
            if size != expected:
                raise DataError(f"{episode.name}: its {name} has size {size}, that of the policy {expected}")
    lengths = [len(episode) - 1 for episode in episodes if episode.success is True]
    if max(lengths, default=0) < horizon:
        raise DataError(
            f"none of the {len(lengths)} recorded successes has horizon={horizon} transitions: chunks of actions start "
            "where a demonstration was"
        )


def make_imitated(demonstrations: Sequence[LatentEpisode]) -> DemoPairs:
    """Return the observations and actions of demonstrations, each with the weight 1."""
    observation = torch.cat([episode.observation for episode in demonstrations])
    action = torch.cat([episode.action for episode in demonstrations])
    return DemoPairs(observation=observation, action=action, weight=torch.ones(len(observation)))
