"""Every recorded number belongs to its environment, episode and step."""

from __future__ import annotations

import numpy as np
import pytest
from counting_env import CountingEnv, timestep_number
from gymnasium.vector import AutoresetMode
from painted_frames import read_numbers

from embodied_rm.data.episode_buffer import subtasks_from_indices
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.record import EpisodeRecorder
from embodied_rm.errors import UserError
from embodied_rm.types import Episode, Subtask


def encode_observation(obs, started):
    """Return actions that encode the observation: environment, episode, step."""
    return np.concatenate([obs, obs[:, :1] * 0 + 1], 1)


def env_and_episode(episode: Episode) -> tuple[int, int]:
    """Return environment and number of the episode from its first observation."""
    return int(episode.state[0, 0]), int(episode.state[0, 1])


def length_of(env_id: int, episode: int) -> int:
    return 5 + (3 * env_id + 7 * episode) % 11


@pytest.mark.parametrize("frame_stride", [1, 2, 3, 40])
def test_numbers_belong_to_their_environment_episode_and_step(frame_stride):
    recorder = EpisodeRecorder(
        CountingEnv(4),
        encode_observation,
        num_episodes=10,
        frame_stride=frame_stride,
        metadata_fn=lambda env_id: {"row": str(env_id)},
    )
    episodes = list(recorder)
    # each environment records a fixed number of episodes: 3, 3, 2 and 2, whichever end first
    assert sorted(map(env_and_episode, episodes)) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
        (2, 1),
        (3, 0),
        (3, 1),
    ]
    for episode in episodes:
        env_id, episode_number = env_and_episode(episode)
        length = length_of(env_id, episode_number)
        times = [*range(0, length, frame_stride), length]
        assert read_numbers(episode.views["front"]) == [timestep_number(env_id, episode_number, t) for t in times]
        np.testing.assert_array_equal(episode.views["wrist"], 255 - episode.views["front"])
        np.testing.assert_array_equal(episode.state, [[env_id, episode_number, t] for t in times])
        # the action of a frame was computed from its observation; the terminal frame repeats the last action
        np.testing.assert_array_equal(episode.action, [[env_id, episode_number, min(t, length - 1), 1] for t in times])
        np.testing.assert_allclose(episode.progress, np.array(times) / length, rtol=1e-6)
        assert episode.instruction == f"row {env_id} episode {episode_number}"
        assert episode.success is (episode_number % 2 == 0)
        assert episode.metadata == {"row": str(env_id)}
        assert episode.fps == 20 / frame_stride
    assert recorder.num_diverged == 0
    assert len({episode.name for episode in episodes}) == 10


def test_only_recorded_frames_are_rendered():
    env = CountingEnv(4)
    num_frames = sum(
        len(episode) for episode in EpisodeRecorder(env, encode_observation, num_episodes=3, frame_stride=2)
    )
    assert env.rendered == num_frames


def test_subtasks_are_runs_of_equal_indices():
    for episode in EpisodeRecorder(CountingEnv(2), encode_observation, num_episodes=4):
        subtask_indices = np.minimum((episode.progress * 3 + 1e-6).astype(int), 2)
        assert [subtask.name for subtask in episode.subtasks] == ["reach", "grasp", "lift"]
        for i, subtask in enumerate(episode.subtasks):
            assert (subtask_indices[subtask.start : subtask.end] == i).all()
        assert episode.subtasks[0].start == 0 and episode.subtasks[-1].end == len(episode)


def test_recurring_index_starts_another_subtask():
    a, b = "open", "pick"
    assert subtasks_from_indices([0, 0, 1, 0, 1, 1], (a, b)) == (
        Subtask(name=a, start=0, end=2),
        Subtask(name=b, start=2, end=3),
        Subtask(name=a, start=3, end=4),
        Subtask(name=b, start=4, end=6),
    )


def test_diverged_episode_is_dropped_and_counted():
    recorder = EpisodeRecorder(CountingEnv(3, diverging={(1, 0): 4, (2, 1): 1}), encode_observation, num_episodes=6)
    episodes = list(recorder)
    assert recorder.num_diverged == 2
    assert sorted(map(env_and_episode, episodes)) == [(0, 0), (0, 1), (1, 1), (2, 0)]
    for episode in episodes:
        assert len(episode) == length_of(*env_and_episode(episode)) + 1


def test_policy_receives_the_started_environments():
    started_per_step = []

    def record_started(obs, started):
        started_per_step.append(started.tolist())
        np.testing.assert_array_equal(started, np.flatnonzero(obs[:, 2] == 0))
        return encode_observation(obs, started)

    list(EpisodeRecorder(CountingEnv(3), record_started, num_episodes=6))
    assert started_per_step[0] == [0, 1, 2] and sum(map(len, started_per_step)) >= 6


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_autoreset_is_rejected(mode):
    with pytest.raises(UserError, match=f"DISABLED, this one has .*{mode.name}"):
        EpisodeRecorder(CountingEnv(2, mode=mode), encode_observation, num_episodes=1)


def test_counts_below_one_are_rejected():
    for counts in ({"num_episodes": 0}, {"num_episodes": 1, "frame_stride": 0}):
        with pytest.raises(UserError, match="must be >= 1, got 0"):
            EpisodeRecorder(CountingEnv(2), encode_observation, **counts)


def test_recorded_dataset_reads_back_equal(tmp_path):
    with DatasetWriter(tmp_path / "data") as writer:
        for episode in EpisodeRecorder(CountingEnv(5), encode_observation, num_episodes=12, frame_stride=2):
            writer.add(episode)
    dataset = LeRobotDataset(tmp_path / "data")
    assert len(dataset) == 12
    for episode in dataset:
        env_id, episode_number = env_and_episode(episode)
        steps = episode.state[:, 2].astype(int)
        assert read_numbers(episode.views["front"]) == [timestep_number(env_id, episode_number, int(t)) for t in steps]
        assert episode.success is (episode_number % 2 == 0)
