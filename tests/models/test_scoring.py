"""Offline scoring is a fold of the online step: every row its own episode, every frame in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from embodied_rm.models.demo_alignment import stack_demonstrations
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.potential_fusion import FUSION_KINDS, FusionKind
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.reward_model import Capabilities
from embodied_rm.models.scoring import MAX_BATCH_EPISODES, score_episodes, score_video, step_many
from embodied_rm.types import Episode, RewardOutput, Views

torch.manual_seed(0)
NET = ProgressNet(
    NetConfig(views=("front", "side"), encoder=small_encoder_config("stride_tower_tiny", (32, 32)))
).eval()


@dataclass
class Counted:
    """The memory of `Counter`: instruction numbers and steps."""

    number: np.ndarray
    steps: np.ndarray

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows) -> Counted:
        return Counted(self.number[rows], self.steps[rows])

    def put(self, rows, other) -> Counted:
        raise NotImplementedError

    def potential(self) -> np.ndarray:
        return self.steps / 100


class Counter:
    """A reward model whose answer is known: it reads who and when off the pixels and checks them against its memory."""

    capabilities = Capabilities()

    def reset(self, views: Views, instructions: Sequence[str], goal: Views | None = None) -> Counted:
        number = np.array([int(text) for text in instructions])
        assert (views.frames[:, 0, 0, 0, 0] == number).all() and (views.frames[:, 0, 0, 0, 1] == 0).all()
        if goal is not None:
            assert (goal.frames[:, 0, 0, 0, 0] == number + 100).all() and (goal.frames[:, 0, 0, 0, 1] == 2).all()
        return Counted(number, np.zeros(len(number), np.int64))

    def step(self, memory: Counted, views: Views) -> tuple[RewardOutput, Counted]:
        steps = memory.steps + 1
        assert (views.frames[:, :, 0, 0, 0] == memory.number[:, None]).all()
        assert (views.frames[:, :, 0, 0, 1] == steps[:, None]).all()
        return (
            RewardOutput(
                progress=(steps / 100).astype(np.float32),
                valid=steps % 3 > 0,
                subtask=memory.number * 1000 + steps,
                success=np.zeros(len(steps), np.float32),
                uncertainty=np.ones(len(steps), np.float32),
            ),
            Counted(memory.number, steps),
        )


def numbered(number: int, length: int, views: tuple[str, ...] = ("front", "side"), size: int = 4) -> Episode:
    frames = np.zeros((length, size, size, 3), np.uint8)
    frames[..., 0], frames[..., 1] = number, np.arange(length)[:, None, None]
    return Episode(name=f"e{number}", views=dict.fromkeys(views, frames), instruction=str(number), fps=10.0)


def test_every_frame_is_judged_once_in_its_own_row_whatever_the_lengths_views_and_sizes():
    rng = np.random.default_rng(0)
    kinds = [(("front", "side"), 4), (("side",), 4), (("front", "side"), 8)]
    episodes = [numbered(i, int(rng.integers(1, 12)), *kinds[i % 3]) for i in range(3 * MAX_BATCH_EPISODES)]
    for i, curve in enumerate(score_episodes(Counter(), episodes)):
        steps = np.arange(len(episodes[i]))
        np.testing.assert_allclose(curve.progress, steps / 100, atol=1e-7)
        assert (curve.subtask[1:] == i * 1000 + steps[1:]).all() and curve.subtask[0] == 0
        assert (curve.valid[1:] == (steps[1:] % 3 > 0)).all() and curve.valid[0]


def test_the_goal_is_the_last_frame_of_the_episode_given_for_it():
    episodes = [numbered(i, 3 + i) for i in range(4)]
    # `Counter.begin` checks the goal of every row.
    curves = score_episodes(Counter(), episodes, [numbered(i + 100, 3) for i in range(4)])
    assert [len(curve.progress) for curve in curves] == [3, 4, 5, 6]


def noise(seed: int, length: int) -> Episode:
    frames = np.random.default_rng(seed).integers(0, 256, (2, length, 32, 32, 3), np.uint8)
    return Episode(name=str(seed), views={"front": frames[0], "side": frames[1]}, instruction="lift it", fps=10.0)


def test_side_by_side_is_one_by_one_and_a_longer_recording_changes_no_past_score():
    episodes = [noise(1, 6), noise(2, 9), noise(3, 4)]
    together = score_episodes(NET, episodes)
    for episode, curve in zip(episodes, together, strict=True):
        alone = score_episodes(NET, [episode])[0]
        cut = {name: frames[:3] for name, frames in episode.views.items()}
        early = score_episodes(NET, [replace(episode, views=cut)])[0]
        np.testing.assert_allclose(curve.progress, alone.progress, atol=1e-5)
        np.testing.assert_allclose(curve.success, alone.success, atol=1e-5)
        np.testing.assert_allclose(early.progress, curve.progress[:3], atol=1e-5)


def blocks_of(episode: Episode, lengths: Sequence[int]) -> Iterator[Views]:
    frames, start = np.stack(list(episode.views.values()), axis=1), 0
    for length in lengths:
        yield Views(names=tuple(episode.views), frames=frames[start : start + length])
        start += length


@pytest.mark.parametrize("lengths", [(11,), (1, 10), (4, 1, 6), (5, 5, 1)])
def test_a_video_in_blocks_is_judged_as_the_episode_is(lengths: Sequence[int]) -> None:
    """Also by a model that looks at one frame after the other only, `Counter`."""
    for model, episode in ((NET, noise(4, 11)), (Counter(), numbered(7, 11))):
        whole = score_episodes(model, [episode])[0]
        video = score_video(model, episode.instruction, blocks_of(episode, lengths))
        for name in vars(whole):
            np.testing.assert_allclose(getattr(video, name), getattr(whole, name), atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["backward", "reference"])
def test_a_video_in_blocks_is_given_its_goal_and_its_reference(kind: FusionKind) -> None:
    net, episode, shown = NET.with_fusion(kind), noise(4, 11), noise(6, 9)
    shown = replace(shown, progress=np.linspace(0, 1, 9, dtype=np.float32))
    whole = score_episodes(net, [episode], [shown], [shown])[0]
    video = score_video(net, episode.instruction, blocks_of(episode, (4, 7)), shown, shown)
    np.testing.assert_allclose(video.progress, whole.progress, atol=1e-5)
    assert np.ptp(whole.progress) > 0


@pytest.mark.parametrize("kind", FUSION_KINDS)
def test_many_frames_at_once_are_what_advance_says_of_them_one_by_one(kind: FusionKind) -> None:
    net, episode = NET.with_fusion(kind), noise(5, 9)
    views = next(blocks_of(episode, (9,)))
    goal = views.select(np.array([8]))
    shown = replace(noise(6, 9), progress=np.linspace(0, 1, 9, dtype=np.float32))
    reference = stack_demonstrations([shown]) if kind == "reference" else None
    memory = one_by_one = net.reset(views.select(np.array([0])), ["lift it"], goal, reference)
    together, after = step_many(net, memory, views.select(np.arange(1, 9)))
    for t in range(1, 9):
        judged, one_by_one = net.step(one_by_one, views.select(np.array([t])))
        for name in vars(judged):
            np.testing.assert_allclose(getattr(together, name)[t - 1], getattr(judged, name)[0], atol=1e-5)
    for name, tensor in vars(one_by_one).items():
        torch.testing.assert_close(getattr(after, name), tensor, atol=1e-5, rtol=1e-4)
