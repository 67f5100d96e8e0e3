"""Rewards of users who disagree: a few answers select the reward, and one reward for all cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from embodied_rm.errors import CheckpointError, DataError
from embodied_rm.labels.comparisons import Clip, ClipComparison, draw_clip_pairs
from embodied_rm.run_folder import NullReporter
from embodied_rm.training.user_preferences.train_user_reward import (
    UserRewardConfig,
    measure_accuracy,
    measure_asking,
    train_user_reward,
)
from embodied_rm.training.user_preferences.user_answers import UserAnswers, make_clip_pairs, make_user_answers
from embodied_rm.training.user_preferences.user_reward_net import (
    ClipPairs,
    UserRewardNet,
    load_user_reward,
    save_user_reward,
)
from embodied_rm.types import Array

CONFIG = UserRewardConfig(steps=300, latent_size=2, hidden_sizes=(32, 32), num_answers=5)


def random_episodes(count: int = 60) -> dict[str, Array]:
    """Episodes of 3 to 12 frames whose columns are two qualities, constant in an episode, and noise."""
    rng = np.random.default_rng(0)
    lengths, qualities = rng.integers(3, 13, count), rng.normal(size=(count, 2))
    return {
        f"episode_{row}": np.hstack([np.tile(quality, (length, 1)), rng.normal(size=(length, 1))]).astype(np.float32)
        for row, (length, quality) in enumerate(zip(lengths, qualities, strict=True))
    }


def answers_by(score: dict[str, float], pairs: list[ClipComparison]) -> list[ClipComparison]:
    """Answer pairs by a score of each episode."""
    better = [score[pair.first.episode] > score[pair.second.episode] for pair in pairs]
    return [replace(pair, answer="first" if first else "second") for pair, first in zip(pairs, better, strict=True)]


@pytest.fixture(scope="module")
def users() -> dict[str, UserAnswers]:
    """One user likes the first quality, the other dislikes it."""
    frames = random_episodes()
    pairs = draw_clip_pairs(dict.fromkeys(frames, "push"), 1500, 1.0, seed=0)
    quality = {name: float(episode[0, 0]) for name, episode in frames.items()}
    tables = {
        "likes": answers_by(quality, pairs),
        "dislikes": answers_by({name: -value for name, value in quality.items()}, pairs),
    }
    return make_user_answers(tables, frames, held_out_share=0.3, minimum=20, seed=0)


def test_a_few_answers_tell_users_apart_who_disagree(users: dict[str, UserAnswers]) -> None:
    parts = [user.train for user in users.values()]
    net = train_user_reward(parts, CONFIG, 2, 0, NullReporter())
    averaged = train_user_reward(parts, CONFIG, 0, 0, NullReporter())
    for user in users.values():
        assert user.is_conflict.all()
        assert measure_accuracy(net, user.held_out, user.is_conflict, 5, 0)["conflicts"] > 0.75
        assert measure_asking(net, user.held_out, user.is_conflict, 2, 0)["conflicts"] > 0.75
    rates = [measure_accuracy(averaged, user.held_out, user.is_conflict, 5, 0)["conflicts"] for user in users.values()]
    assert sum(rates) == pytest.approx(1), "what one reward gets right of one user, it gets wrong of the other"


def test_without_answers_a_user_is_that_of_the_prior(users: dict[str, UserAnswers]) -> None:
    net, pairs = UserRewardNet(3, 2, (8,)), users["likes"].held_out
    none = pairs.select(torch.tensor([], dtype=torch.long))
    assert all((value == 0).all() for value in net.posterior(none))
    mean, _ = net.posterior(pairs)
    shuffled, _ = net.posterior(pairs.select(torch.randperm(len(pairs))))
    torch.testing.assert_close(mean, shuffled)


def test_frames_behind_the_end_of_a_clip_count_nothing_and_a_longer_clip_sums_more() -> None:
    net = UserRewardNet(3, 1, (8,))
    frames, user = torch.ones(1, 2, 5, 3), torch.zeros(1)
    pair = ClipPairs(frames=frames, mask=torch.tensor([[[1.0, 1, 1, 1, 0], [1, 1, 0, 0, 0]]]))
    expected = 2 * net.frame_rewards(frames[0, 0, 0], user)
    torch.testing.assert_close(net.log_odds(pair, user), expected[None])
    frames[0, 0, 4] = frames[0, 1, 2:] = 9.0
    torch.testing.assert_close(net.log_odds(pair, user), expected[None])


def test_the_preferred_clip_is_the_first() -> None:
    frames = {"a": np.full((4, 1), 1, np.float32), "b": np.full((3, 1), 2, np.float32)}
    first, second = Clip(episode="a", start=0, end=1), Clip(episode="b", start=0.5, end=1)
    comparison = ClipComparison(first=first, second=second, goal="push", answer="second")
    pairs = make_clip_pairs([comparison], frames)
    assert pairs.mask.tolist() == [[[1, 1, 0, 0], [1, 1, 1, 1]]]
    assert pairs.frames[0, 0, :2].tolist() == [[2], [2]] and pairs.frames[0, 1].tolist() == [[1]] * 4


def test_held_out_answers_are_of_episodes_that_training_has_not(users: dict[str, UserAnswers]) -> None:
    likes = users["likes"]
    train, held_out = (
        {tuple(frame) for frame in part.frames.flatten(0, 2).tolist()} for part in (likes.train, likes.held_out)
    )
    assert train & held_out == {(0.0, 0.0, 0.0)}, "only the padding"


def test_tables_of_other_data_and_few_answers_are_refused() -> None:
    frames = random_episodes(6)
    pairs = answers_by(dict.fromkeys(frames, 0.0), draw_clip_pairs(dict.fromkeys(frames, "push"), 20, 1.0, seed=0))
    with pytest.raises(DataError, match=r"me: its comparisons are of other data: there is no episode episode_"):
        make_user_answers({"me": pairs}, {"other": frames["episode_0"]}, 0.3, 1, 0)
    with pytest.raises(DataError, match=r"me: \d+ answers for training and \d+ about held-out episodes, of 20; at le"):
        make_user_answers({"me": pairs}, frames, 0.3, 19, 0)


def test_checkpoints_are_read_as_written_and_others_refused(tmp_path: Path) -> None:
    net = UserRewardNet(3, 2, (8, 8))
    save_user_reward(tmp_path / "net", net)
    again = load_user_reward(tmp_path / "net")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in net.state_dict().items())
    (tmp_path / "net" / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError):
        load_user_reward(tmp_path / "net")
