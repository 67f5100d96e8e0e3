"""A policy that is improved in a world model of recordings: pairs of imagined chunks, then preference optimization."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from embodied_rm.errors import DataError, UserError
from embodied_rm.rl.imagination.chunks import ChunkPairs, best_and_worst, imagine_chunks, rate_chunks
from embodied_rm.rl.imagination.dpo import DPOConfig, DPOStats, optimize_preferences
from embodied_rm.rl.imagination.latent_episodes import LatentEpisode, WindowSampler
from embodied_rm.rl.imagination.world_model import WorldModel
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.run_folder import Reporter


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
    windows = sampler.windows(sampler.starts.repeat(config.groups_per_state))
    shape = (len(windows.progress), config.num_chunks, horizon, windows.action.shape[-1])
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(config.seed))
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
        DataError: There are no demonstrations, or they are shorter than a chunk.
        UserError: All chunks are equally good, or the loss is not finite.
    """
    if not demonstrations:
        raise DataError("there is no recorded success: chunks start where a demonstration was")
    improved = copy.deepcopy(policy)
    pairs = imagined_pairs(model, policy, demonstrations, horizon, config)
    stats = optimize_preferences(improved, pairs, make_imitated(demonstrations), config, reporter)
    return improved, stats


def check_state_policy(policy: GaussianPolicy, name: object) -> None:
    """Raise `UserError` if a policy observes images: a world model predicts what the policy observes."""
    if policy.spec.obs_mode != "state":
        raise UserError(f"{name}: obs_mode={policy.spec.obs_mode}; a world model is for policies with obs_mode=state")


def check_fits(policy: GaussianPolicy, recordings: Sequence[LatentEpisode]) -> None:
    """Raise `DataError` if the policy has other observations or actions than the recordings."""
    for episode in recordings:
        recorded = {"observations": episode.observation.shape[1], "actions": episode.action.shape[1]}
        expected = {"observations": policy.spec.obs_dim, "actions": policy.spec.action_dim}
        for name, size in recorded.items():
            if size != expected[name]:
                raise DataError(f"the recorded {name} have size {size}, those of the policy {expected[name]}")


def make_imitated(demonstrations: Sequence[LatentEpisode]) -> DemoPairs:
    """Return the observations and actions of demonstrations, each with the weight 1."""
    observation = torch.cat([episode.observation for episode in demonstrations])
    action = torch.cat([episode.action for episode in demonstrations])
    return DemoPairs(observation=observation, action=action, weight=torch.ones(len(observation)))
