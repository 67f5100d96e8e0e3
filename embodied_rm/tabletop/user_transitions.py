"""Recorded transitions with the reward of one user, whom their answers describe (VPL, arXiv 2408.10075)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from embodied_rm.errors import DataError
from embodied_rm.labels.comparisons import read_comparisons
from embodied_rm.paths import CHECKPOINT_DIR, resolve_checkpoint
from embodied_rm.rl.offline.transitions import OfflineTransitions, ends_in_success, make_transitions
from embodied_rm.training.user_preferences.user_answers import frame_vectors, make_clip_pairs
from embodied_rm.training.user_preferences.user_reward_net import load_user_reward
from embodied_rm.types import Episode


def make_user_transitions(
    episodes: Sequence[Episode], checkpoint: Path, answers: Path, *, progress_scale: float, success_reward: float
) -> OfflineTransitions:
    """Return the transitions of episodes; their rewards in an episode sum to the log odds of the user's preference.

    Args:
        episodes: Episodes with state and action.
        checkpoint: Run folder of `embodied-rm personalize`, or its checkpoint.
        answers: Run folder of `embodied-rm prefer`, or its table, with answers of the user; those about
            these episodes count.
        progress_scale: Weight of the user's reward.
        success_reward: Reward of a recorded success, which ends the task; 0: the outcome is not used.

    Raises:
        DataError: An episode lacks state or action, the sizes differ from those of the reward, or the table has no
            answer about two of these episodes.
    """
    net = load_user_reward(resolve_checkpoint(checkpoint, CHECKPOINT_DIR))
    frames = {episode.name: frame_vectors(episode.name, episode.state, episode.action) for episode in episodes}
    for name, vectors in frames.items():
        if vectors.shape[1] != len(net.mean):
            raise DataError(f"{name}: state and action have {vectors.shape[1]} numbers, the reward has {len(net.mean)}")
    decided = [
        c for c in read_comparisons(answers) if c.is_decided and {c.first.episode, c.second.episode} <= frames.keys()
    ]
    if not decided:
        raise DataError(f"{answers}: no decided comparison is about these episodes: nothing describes the user")
    user, _ = net.posterior(make_clip_pairs(decided, frames))
    rewards = []
    for episode in episodes:
        own = net.frame_rewards(torch.from_numpy(frames[episode.name][:-1]), user) / net.length
        outcome = success_reward * ends_in_success(episode) * bool(success_reward)
        rewards.append((progress_scale * own.numpy() + outcome).astype(np.float32))
    return make_transitions(episodes, rewards, uses_outcome=bool(success_reward))
