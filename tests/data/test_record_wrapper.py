"""Recording changes nothing of the environment that is recorded, and keeps every frame under its own row, episode and step."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
from counting_env import CountingEnv, number
from painted import numbers_in

from embodied_rm.data.record_wrapper import RecordEpisodes
from embodied_rm.errors import UserError
from embodied_rm.types import Episode


def played(
    steps: int, *, rows: int, every: int, diverging=None, looks: Callable[[int], bool] = lambda step: False
) -> tuple[list[Episode], CountingEnv]:
    """The videos of so many steps of three rows; whoever plays `looks` at everything at some of them."""
    videos: list[Episode] = []
    env = CountingEnv(3, diverging)
    env = RecordEpisodes(env, videos.append, num_recorded=rows, frame_stride=every)
    observation, _ = env.reset()
    for step in range(steps):
        if looks(step):
            env.render_views(np.arange(3))
        observation, _, done, _, _ = env.step(np.concatenate([observation, observation[:, :1] * 0 + 1], 1))
        if done.any():
            if looks(step):
                env.render_views(np.flatnonzero(done))
            observation, _ = env.reset(options={"reset_mask": done})
    return videos, env


@pytest.mark.parametrize("every", [1, 3, 40])
def test_every_frame_is_of_its_row_episode_and_step(every: int) -> None:
    videos, _ = played(60, rows=2, every=every)
    assert [video.name for video in videos] == [f"episode_{i:06d}" for i in range(len(videos))]
    seen = set()
    for video in videos:
        row, which = map(int, video.state[0, :2])
        seen.add(row)
        length = 5 + (3 * row + 7 * which) % 11
        times = [*range(0, length, every), length]
        assert numbers_in(video.views["front"]) == [number(row, which % 8, t) for t in times]
        np.testing.assert_array_equal(video.state, [[row, which, t] for t in times])
        np.testing.assert_array_equal(video.action, [[row, which, min(t, length - 1), 1] for t in times])
        np.testing.assert_allclose(video.progress, np.array(times) / length, rtol=1e-6)
        assert video.instruction == f"row {row} episode {which}" and video.success is (which % 2 == 0)
        assert video.fps == 20 / every
    assert seen == {0, 1}


def test_what_others_look_at_is_not_drawn_again() -> None:
    videos, env = played(60, rows=2, every=1, looks=lambda step: True)
    alone, idle = played(60, rows=2, every=1)
    assert [numbers_in(video.views["front"]) for video in videos] == [
        numbers_in(video.views["front"]) for video in alone
    ]
    ended = sum(int(episode) for episode in env.episode)
    assert env.rendered == 60 * 3 + ended + 2 + sum(map(int, env.episode[:2]))  # its own: the first frames alone
    assert idle.rendered == sum(map(len, videos)) + sum(int(time) for time in env.time[:2])


def test_a_env_that_broke_down_is_no_video() -> None:
    videos, _ = played(60, rows=3, every=2, diverging={(1, 0): 3})
    assert (1, 0) not in {tuple(map(int, video.state[0, :2])) for video in videos}
    assert (1, 1) not in {tuple(map(int, video.state[0, :2])) for video in videos[:2]} and videos


def test_what_cannot_be_recorded_is_named() -> None:
    with pytest.raises(UserError, match="lacks view_names, subtask_names, instructions, render_views"):
        RecordEpisodes(gym.make_vec("CartPole-v1", 2), print, num_recorded=1, frame_stride=1)
    for wrong in ({"num_recorded": 0, "frame_stride": 1}, {"num_recorded": 1, "frame_stride": 0}):
        with pytest.raises(UserError, match="must be >= 1, got 0"):
            RecordEpisodes(CountingEnv(1), print, **wrong)
