"""Offline scoring equals the online steps, for every row and every frame."""

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
class CounterState:
    """The state of `Counter`: instruction numbers and step counts."""

    number: np.ndarray
    steps: np.ndarray

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows) -> CounterState:
        return CounterState(self.number[rows], self.steps[rows])

    def put(self, rows, other) -> CounterState:
        raise NotImplementedError

    def potential(self) -> np.ndarray:
        return self.steps / 100


class Counter:
    """A reward model with known predictions: it reads row and frame from the pixels and checks them."""

    capabilities = Capabilities()

    def reset(self, views: Views, instructions: Sequence[str], goal: Views | None = None) -> CounterState:
        number = np.array([int(text) for text in instructions])
        assert (views.frames[:, 0, 0, 0, 0] == number).all() and (views.frames[:, 0, 0, 0, 1] == 0).all()
        if goal is not None:
            assert (goal.frames[:, 0, 0, 0, 0] == number + 100).all() and (goal.frames[:, 0, 0, 0, 1] == 2).all()
        return CounterState(number, np.zeros(len(number), np.int64))

    def step(self, state: CounterState, views: Views) -> tuple[RewardOutput, CounterState]:
        steps = state.steps + 1
        assert (views.frames[:, :, 0, 0, 0] == state.number[:, None]).all()
        assert (views.frames[:, :, 0, 0, 1] == steps[:, None]).all()
        return (
            RewardOutput(
                progress=(steps / 100).astype(np.float32),
                valid=steps % 3 > 0,
                subtask=state.number * 1000 + steps,
                success=np.zeros(len(steps), np.float32),
                uncertainty=np.ones(len(steps), np.float32),
            ),
            CounterState(state.number, steps),
        )


def numbered_episode(number: int, length: int, views: tuple[str, ...] = ("front", "side"), size: int = 4) -> Episode:
    frames = np.zeros((length, size, size, 3), np.uint8)
    frames[..., 0], frames[..., 1] = number, np.arange(length)[:, None, None]
    return Episode(name=f"e{number}", views=dict.fromkeys(views, frames), instruction=str(number), fps=10.0)


def test_every_frame_is_scored_once_for_any_lengths_views_and_sizes():
    rng = np.random.default_rng(0)
    kinds = [(("front", "side"), 4), (("side",), 4), (("front", "side"), 8)]
    episodes = [numbered_episode(i, int(rng.integers(1, 12)), *kinds[i % 3]) for i in range(3 * MAX_BATCH_EPISODES)]
    for i, curve in enumerate(score_episodes(Counter(), episodes)):
        steps = np.arange(len(episodes[i]))
        np.testing.assert_allclose(curve.progress, steps / 100, atol=1e-7)
        assert (curve.subtask[1:] == i * 1000 + steps[1:]).all() and curve.subtask[0] == 0
        assert (curve.valid[1:] == (steps[1:] % 3 > 0)).all() and curve.valid[0]


def test_goal_is_the_last_frame_of_the_goal_episode():
    episodes = [numbered_episode(i, 3 + i) for i in range(4)]
    # `Counter.reset` checks the goal of every row.
    curves = score_episodes(Counter(), episodes, [numbered_episode(i + 100, 3) for i in range(4)])
    assert [len(curve.progress) for curve in curves] == [3, 4, 5, 6]


def noise_episode(seed: int, length: int) -> Episode:
    frames = np.random.default_rng(seed).integers(0, 256, (2, length, 32, 32, 3), np.uint8)
    return Episode(name=str(seed), views={"front": frames[0], "side": frames[1]}, instruction="lift it", fps=10.0)


def test_batched_scores_equal_single_scores_and_are_causal():
    episodes = [noise_episode(1, 6), noise_episode(2, 9), noise_episode(3, 4)]
    batched = score_episodes(NET, episodes)
    for episode, curve in zip(episodes, batched, strict=True):
        single = score_episodes(NET, [episode])[0]
        prefix_views = {name: frames[:3] for name, frames in episode.views.items()}
        prefix = score_episodes(NET, [replace(episode, views=prefix_views)])[0]
        np.testing.assert_allclose(curve.progress, single.progress, atol=1e-5)
        np.testing.assert_allclose(curve.success, single.success, atol=1e-5)
        np.testing.assert_allclose(prefix.progress, curve.progress[:3], atol=1e-5)


def split_into_blocks(episode: Episode, lengths: Sequence[int]) -> Iterator[Views]:
    frames, start = np.stack(list(episode.views.values()), axis=1), 0
    for length in lengths:
        yield Views(names=tuple(episode.views), frames=frames[start : start + length])
        start += length


@pytest.mark.parametrize("lengths", [(11,), (1, 10), (4, 1, 6), (5, 5, 1)])
def test_video_in_blocks_is_scored_like_the_episode(lengths: Sequence[int]) -> None:
    """Also with `Counter`, which scores one frame at a time."""
    for model, episode in ((NET, noise_episode(4, 11)), (Counter(), numbered_episode(7, 11))):
        expected = score_episodes(model, [episode])[0]
        video = score_video(model, episode.instruction, split_into_blocks(episode, lengths))
        for name in vars(expected):
            np.testing.assert_allclose(getattr(video, name), getattr(expected, name), atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["backward", "reference"])
def test_video_in_blocks_uses_goal_and_reference(kind: FusionKind) -> None:
    net = NET.with_fusion(kind)
    episode = noise_episode(4, 11)
    demonstration = replace(noise_episode(6, 9), progress=np.linspace(0, 1, 9, dtype=np.float32))
    expected = score_episodes(net, [episode], [demonstration], [demonstration])[0]
    video = score_video(net, episode.instruction, split_into_blocks(episode, (4, 7)), demonstration, demonstration)
    np.testing.assert_allclose(video.progress, expected.progress, atol=1e-5)
    assert np.ptp(expected.progress) > 0


@pytest.mark.parametrize("kind", FUSION_KINDS)
def test_step_many_equals_repeated_steps(kind: FusionKind) -> None:
    net, episode = NET.with_fusion(kind), noise_episode(5, 9)
    views = next(split_into_blocks(episode, (9,)))
    goal = views.select(np.array([8]))
    demonstration = replace(noise_episode(6, 9), progress=np.linspace(0, 1, 9, dtype=np.float32))
    reference = stack_demonstrations([demonstration]) if kind == "reference" else None
    state = single_state = net.reset(views.select(np.array([0])), ["lift it"], goal, reference)
    batched, next_state = step_many(net, state, views.select(np.arange(1, 9)))
    for t in range(1, 9):
        output, single_state = net.step(single_state, views.select(np.array([t])))
        for name in vars(output):
            np.testing.assert_allclose(getattr(batched, name)[t - 1], getattr(output, name)[0], atol=1e-5)
    for name, tensor in vars(single_state).items():
        torch.testing.assert_close(getattr(next_state, name), tensor, atol=1e-5, rtol=1e-4)
