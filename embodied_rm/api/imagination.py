"""Improve a cloned policy in a world model of recorded episodes, without an environment step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from embodied_rm.api.build_config import build_config
from embodied_rm.api.progress_reward_model import ProgressRewardModel
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.rl.imagination.dpo import DPOConfig
from embodied_rm.rl.imagination.improve_policy import check_recordings, check_state_policy, improve_policy
from embodied_rm.rl.imagination.latent_episodes import LatentEpisode, make_latent_episodes
from embodied_rm.rl.imagination.train_world_model import train_world_model
from embodied_rm.rl.imagination.world_model_config import WorldModelConfig
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.run_folder import NullReporter, Reporter
from embodied_rm.types import Episode

WORLD_MODEL_KEYS = tuple(field.name for field in fields(WorldModelConfig) if field.name != "validation_share")


def dpo(
    policy: GaussianPolicy,
    episodes: Iterable[Episode],
    model: ProgressRewardModel,
    *,
    reporter: Reporter | None = None,
    **config: Any,
) -> GaussianPolicy:
    """Improve a policy by preferences between imagined chunks of actions, with the defaults of `embodied-rm dpo`.

    Args:
        policy: A policy of `clone` or `learn_offline`; it does not change.
        episodes: Successes and failures of its task with `state` and `action`, as they were recorded.
        model: Reward model whose states the world model predicts.
        reporter: Shows progress; None: nothing is output.
        **config: Any field of `DPOConfig`, or of `WorldModelConfig` but `validation_share`, such as `horizon=5`.

    Returns:
        The improved policy.

    Raises:
        UserError: For an unknown key, a value that is out of range, or a loss that became non-finite.
        DataError: When an episode lacks state or action, no success is as long as the horizon, or sizes differ from the
            policy's.
    """
    check_state_policy(policy, "the policy")
    world_config = build_config(WorldModelConfig, {k: v for k, v in config.items() if k in WORLD_MODEL_KEYS})
    dpo_config = build_config(DPOConfig, {k: v for k, v in config.items() if k not in WORLD_MODEL_KEYS})
    output = reporter or NullReporter()
    recorded = list(episodes)
    check_recordings(policy, recorded, world_config.horizon)
    recordings = encode_recordings(model.net, recorded, output)
    world_model = train_world_model(recordings, world_config, dpo_config.seed, output)
    demonstrations = [episode for episode in recordings if episode.is_demonstration]
    improved, _ = improve_policy(policy, world_model, demonstrations, world_config.horizon, dpo_config, output)
    return improved


def encode_recordings(net: ProgressNet, episodes: Sequence[Episode], reporter: Reporter) -> list[LatentEpisode]:
    """Return episodes with the embeddings and the progress of a reward model.

    Args:
        net: The reward model.
        episodes: Episodes with state, action and the views of the model.
        reporter: Output for the user.

    Raises:
        DataError: An episode lacks state or action, or a frame has no visible view.
    """
    embeddings = [net.embed_episode(episode) for episode in reporter.track(episodes, "encode recordings")]
    return make_latent_episodes(episodes, embeddings, [output.progress for output in score_episodes(net, episodes)])
