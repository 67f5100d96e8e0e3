"""The recording wrapper leaves the environment unchanged and keeps every frame in its own episode."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
from counting_env import CountingEnv, timestep_number
from painted_frames import read_numbers

from embodied_rm.data.record import RecordEpisodes
from embodied_rm.errors import UserError
from embodied_rm.types import Episode


def play(
    steps: int,
    *,
    num_recorded: int,
    frame_stride: int,
    diverging=None,
    renders_at: Callable[[int], bool] = lambda step: False,
) -> tuple[list[Episode], CountingEnv]:
    """Play three environments and return the recorded episodes. `renders_at`: steps at which the player renders."""
    episodes: list[Episode] = []
    env = CountingEnv(3, diverging)
    env = RecordEpisodes(env, episodes.append, num_recorded=num_recorded, frame_stride=frame_stride)
    observation, _ = env.reset()
    for step in range(steps):
        if renders_at(step):
            env.render_views(np.arange(3))
        observation, _, done, _, _ = env.step(np.concatenate([observation, observation[:, :1] * 0 + 1], 1))
        if done.any():
            if renders_at(step):
                env.render_views(np.flatnonzero(done))
            observation, _ = env.reset(options={"reset_mask": done})
    return episodes, env


@pytest.mark.parametrize("frame_stride", [1, 3, 40])
def test_frames_belong_to_their_environment_episode_and_step(frame_stride: int) -> None:
    episodes, _ = play(60, num_recorded=2, frame_stride=frame_stride)
    assert [episode.name for episode in episodes] == [f"episode_{i:06d}" for i in range(len(episodes))]
    recorded_envs = set()
    for episode in episodes:
        env_id, episode_number = map(int, episode.state[0, :2])
        recorded_envs.add(env_id)
        length = 5 + (3 * env_id + 7 * episode_number) % 11
        times = [*range(0, length, frame_stride), length]
        assert read_numbers(episode.views["front"]) == [timestep_number(env_id, episode_number % 8, t) for t in times]
        np.testing.assert_array_equal(episode.state, [[env_id, episode_number, t] for t in times])
        np.testing.assert_array_equal(episode.action, [[env_id, episode_number, min(t, length - 1), 1] for t in times])
        np.testing.assert_allclose(episode.progress, np.array(times) / length, rtol=1e-6)
        assert episode.instruction == f"row {env_id} episode {episode_number}" and episode.success is (
            episode_number % 2 == 0
        )
        assert episode.fps == 20 / frame_stride
    assert recorded_envs == {0, 1}


def test_images_rendered_by_the_player_are_reused() -> None:
    episodes, env = play(60, num_recorded=2, frame_stride=1, renders_at=lambda step: True)
    episodes_without_player, idle_env = play(60, num_recorded=2, frame_stride=1)
    assert [read_numbers(episode.views["front"]) for episode in episodes] == [
        read_numbers(episode.views["front"]) for episode in episodes_without_player
    ]
    num_finished = sum(int(episode) for episode in env.episode)
    assert env.rendered == 60 * 3 + num_finished + 2 + sum(
        map(int, env.episode[:2])
    )  # rendered by the wrapper itself: only the first frames
    assert idle_env.rendered == sum(map(len, episodes)) + sum(int(time) for time in env.time[:2])


def test_episodes_that_a_reset_of_all_environments_cuts_are_not_recorded() -> None:
    episodes, env = play(60, num_recorded=3, frame_stride=2)
    finished = len(episodes)
    env.reset(seed=1)
    assert len(episodes) == finished, "a cut attempt is not a failure"


def test_diverged_episode_is_not_recorded() -> None:
    episodes, _ = play(60, num_recorded=3, frame_stride=2, diverging={(1, 0): 3})
    assert (1, 0) not in {tuple(map(int, episode.state[0, :2])) for episode in episodes}
    assert (1, 1) not in {tuple(map(int, episode.state[0, :2])) for episode in episodes[:2]} and episodes


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(UserError, match="lacks view_names, instructions, render_views"):
        RecordEpisodes(gym.make_vec("CartPole-v1", 2), print, num_recorded=1, frame_stride=1)
    for counts in ({"num_recorded": 0, "frame_stride": 1}, {"num_recorded": 1, "frame_stride": 0}):
        with pytest.raises(UserError, match="must be >= 1, got 0"):
            RecordEpisodes(CountingEnv(1), print, **counts)
