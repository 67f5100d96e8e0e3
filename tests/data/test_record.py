"""In an environment that counts, every recorded number must be of the row, episode and step it is filed under."""

from __future__ import annotations

import numpy as np
import pytest
from counting_env import CountingEnv, number
from gymnasium.vector import AutoresetMode
from painted import numbers_in

from embodied_rm.data.episode_buffer import subtasks_from_indices
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.record import EpisodeRecorder
from embodied_rm.errors import UserError
from embodied_rm.types import Episode, Subtask


def act(obs, begun):
    """Actions that say what they answer to: row, episode, step."""
    return np.concatenate([obs, obs[:, :1] * 0 + 1], 1)


def identity(episode: Episode) -> tuple[int, int]:
    """Row and number of the episode, as its first observation says."""
    return int(episode.state[0, 0]), int(episode.state[0, 1])


def length_of(row: int, episode: int) -> int:
    return 5 + (3 * row + 7 * episode) % 11


@pytest.mark.parametrize("every", [1, 2, 3, 40])
def test_every_number_is_of_its_own_row_episode_and_step(every):
    recorder = EpisodeRecorder(
        CountingEnv(4), act, num_episodes=10, frame_stride=every, metadata_fn=lambda row: {"row": str(row)}
    )
    episodes = list(recorder)
    # the rows' shares are fixed: 3, 3, 2 and 2 episodes, whichever end first
    assert sorted(map(identity, episodes)) == [
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
        row, which = identity(episode)
        length = length_of(row, which)
        times = [*range(0, length, every), length]
        assert numbers_in(episode.views["front"]) == [number(row, which, t) for t in times]
        np.testing.assert_array_equal(episode.views["wrist"], 255 - episode.views["front"])
        np.testing.assert_array_equal(episode.state, [[row, which, t] for t in times])
        # a frame's action answers to what was seen there; the terminal frame repeats the last one
        np.testing.assert_array_equal(episode.action, [[row, which, min(t, length - 1), 1] for t in times])
        np.testing.assert_allclose(episode.progress, np.array(times) / length, rtol=1e-6)
        assert episode.instruction == f"row {row} episode {which}"
        assert episode.success is (which % 2 == 0)
        assert episode.metadata == {"row": str(row)}
        assert episode.fps == 20 / every
    assert recorder.num_diverged == 0
    assert len({episode.name for episode in episodes}) == 10


def test_only_what_is_kept_is_rendered():
    env = CountingEnv(4)
    kept = sum(len(episode) for episode in EpisodeRecorder(env, act, num_episodes=3, frame_stride=2))
    assert env.rendered == kept


def test_steps_are_the_stages_that_were_gone_through():
    for episode in EpisodeRecorder(CountingEnv(2), act, num_episodes=4):
        stages = np.minimum((episode.progress * 3 + 1e-6).astype(int), 2)
        assert [step.name for step in episode.subtasks] == ["reach", "grasp", "lift"]
        for i, step in enumerate(episode.subtasks):
            assert (stages[step.start : step.end] == i).all()
        assert episode.subtasks[0].start == 0 and episode.subtasks[-1].end == len(episode)


def test_a_stage_taken_up_again_is_a_step_again():
    a, b = "open", "pick"
    assert subtasks_from_indices([0, 0, 1, 0, 1, 1], (a, b)) == (
        Subtask(name=a, start=0, end=2),
        Subtask(name=b, start=2, end=3),
        Subtask(name=a, start=3, end=4),
        Subtask(name=b, start=4, end=6),
    )


def test_a_diverged_episode_is_dropped_and_counted():
    recorder = EpisodeRecorder(CountingEnv(3, diverging={(1, 0): 4, (2, 1): 1}), act, num_episodes=6)
    episodes = list(recorder)
    assert recorder.num_diverged == 2
    assert sorted(map(identity, episodes)) == [(0, 0), (0, 1), (1, 1), (2, 0)]
    for episode in episodes:
        assert len(episode) == length_of(*identity(episode)) + 1


def test_the_actor_is_told_which_rows_began():
    told = []

    def note(obs, begun):
        told.append(begun.tolist())
        np.testing.assert_array_equal(begun, np.flatnonzero(obs[:, 2] == 0))
        return act(obs, begun)

    list(EpisodeRecorder(CountingEnv(3), note, num_episodes=6))
    assert told[0] == [0, 1, 2] and sum(map(len, told)) >= 6


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_an_environment_that_resets_by_itself_is_refused(mode):
    with pytest.raises(UserError, match=f"DISABLED, this one has .*{mode.name}"):
        EpisodeRecorder(CountingEnv(2, mode=mode), act, num_episodes=1)


def test_counts_below_one_are_refused():
    for wrong in ({"num_episodes": 0}, {"num_episodes": 1, "frame_stride": 0}):
        with pytest.raises(UserError, match="must be >= 1, got 0"):
            EpisodeRecorder(CountingEnv(2), act, **wrong)


def test_what_was_recorded_is_what_is_read(tmp_path):
    with DatasetWriter(tmp_path / "data") as writer:
        for episode in EpisodeRecorder(CountingEnv(5), act, num_episodes=12, frame_stride=2):
            writer.add(episode)
    dataset = LeRobotDataset(tmp_path / "data")
    assert len(dataset) == 12
    for episode in dataset:
        row, which = identity(episode)
        steps = episode.state[:, 2].astype(int)
        assert numbers_in(episode.views["front"]) == [number(row, which, int(t)) for t in steps]
        assert episode.success is (which % 2 == 0)
