"""Offline transitions with the reward of a user: whole episodes have the log odds of the user's preference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.errors import DataError
from embodied_rm.labels.comparisons import Clip, ClipComparison, write_comparisons
from embodied_rm.tabletop.user_transitions import make_user_transitions
from embodied_rm.training.user_preferences.user_answers import frame_vectors, make_clip_pairs
from embodied_rm.training.user_preferences.user_reward_net import UserRewardNet, save_user_reward
from embodied_rm.types import Episode

STATE_SIZE, ACTION_SIZE = 3, 2


@pytest.fixture
def recordings() -> list[Episode]:
    rng, recorded = np.random.default_rng(0), []
    for episode in episodes(4):
        columns = {
            "state": rng.normal(size=(len(episode), STATE_SIZE)).astype(np.float32),
            "action": rng.normal(size=(len(episode), ACTION_SIZE)).astype(np.float32),
        }
        recorded.append(Episode(**{**vars(episode), **columns, "success": False}))
    return recorded


def compare_whole(first: Episode, second: Episode) -> ClipComparison:
    clips = [Clip(episode=episode.name, start=0, end=1) for episode in (first, second)]
    return ClipComparison(first=clips[0], second=clips[1], goal="", answer="first")


def test_rewards_of_an_episode_sum_to_the_log_odds_for_the_user(recordings: list[Episode], tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = UserRewardNet(STATE_SIZE + ACTION_SIZE, 2, (8,))
    frames = {episode.name: frame_vectors(episode.name, episode.state, episode.action) for episode in recordings}
    answers = [compare_whole(*recordings[:2]), compare_whole(recordings[3], recordings[2])]
    net.fit_normalizer(make_clip_pairs(answers, frames))
    save_user_reward(tmp_path / "checkpoint", net)
    write_comparisons(tmp_path / "answers.jsonl", answers)
    transitions = make_user_transitions(
        recordings, tmp_path, tmp_path / "answers.jsonl", progress_scale=2.0, success_reward=0.0
    )
    returns = torch.zeros(len(recordings)).index_add(0, transitions.episode_index, transitions.reward)
    user, _ = net.posterior(make_clip_pairs(answers, frames))
    # The action of the last frame is not taken, so that its reward is not paid.
    last = [net.frame_rewards(torch.from_numpy(frames[episode.name][-1]), user) / net.length for episode in recordings]
    log_odds = net.log_odds(make_clip_pairs([answers[0]], frames), user)
    torch.testing.assert_close((returns[0] - returns[1])[None] / 2, log_odds - last[0] + last[1])
    assert not transitions.terminated.any()


def test_answers_about_other_episodes_are_refused(recordings: list[Episode], tmp_path: Path) -> None:
    save_user_reward(tmp_path / "checkpoint", UserRewardNet(STATE_SIZE + ACTION_SIZE, 2, (8,)))
    write_comparisons(tmp_path / "answers.jsonl", [compare_whole(*recordings[:2])])
    with pytest.raises(DataError, match="no decided comparison is about these episodes"):
        make_user_transitions(
            recordings[2:], tmp_path, tmp_path / "answers.jsonl", progress_scale=1.0, success_reward=1.0
        )
