"""Alignment with a demonstration: both directions of time, causality and independence of rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sprites import episode, episodes

from embodied_rm.errors import UserError
from embodied_rm.evaluate import reverse_episode
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.true_progress import true_progress
from embodied_rm.metrics import voc
from embodied_rm.models.demo_alignment import (
    NUM_KEYFRAMES,
    forward_filter_step,
    stack_demonstrations,
    sum_neighbors,
    transition_matrix,
)
from embodied_rm.models.onnx_export import export_graphs
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.progress_net_state import ProgressNetState
from embodied_rm.models.scoring import score_episodes, views_at
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import TrainConfig, train
from embodied_rm.types import Views

KEYFRAMES = torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(0)).cumsum(dim=1)
"""Embeddings of a demonstration as a random walk, so that near keyframes are alike."""
PROGRESS = torch.linspace(0, 1, 12)[None]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> ProgressNet:
    """A net trained on a toy task."""
    config = TrainConfig(image_size=(32, 32), steps=60, batch_size=6, frames_per_episode=6)
    return train(episodes(9), config, RunFolder.open(tmp_path_factory.mktemp("net") / "run"), NullReporter())


def filter_states(states: torch.Tensor) -> list[tuple[float, float]]:
    """Potential and success score of each of the embeddings [T, width] after the first."""
    belief = torch.zeros_like(PROGRESS)
    belief[:, 0] = 1
    max_belief = sum_neighbors(belief)
    curve = []
    for state in states[1:]:
        alignment = forward_filter_step(belief, max_belief, KEYFRAMES, PROGRESS, state[None])
        belief = alignment.belief
        max_belief = alignment.max_belief
        curve.append((float(alignment.potential), float(alignment.success_score)))
    return curve


def test_transitions_are_symmetric_and_beliefs_are_probabilities():
    matrix = transition_matrix(9)
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(9))
    torch.testing.assert_close(matrix, matrix.flip(0, 1))
    alignment = forward_filter_step(
        torch.full((1, 12), 1 / 12), torch.zeros(1, 12), KEYFRAMES, PROGRESS, torch.randn(1, 16)
    )
    assert float(alignment.belief.sum()) == pytest.approx(1, abs=1e-5)
    assert 0 <= float(alignment.success_score) <= 1 and (alignment.max_belief >= alignment.belief - 1e-6).all()


def test_demonstration_is_aligned_with_itself_in_both_directions():
    forward, backward = filter_states(KEYFRAMES[0]), filter_states(torch.cat([KEYFRAMES[0], KEYFRAMES[0].flip(0)]))
    np.testing.assert_allclose([p for p, _ in forward], PROGRESS[0, 1:], atol=0.1)
    np.testing.assert_allclose([p for p, _ in backward[11:]], PROGRESS[0].flip(0), atol=0.1)


def test_success_needs_the_complete_demonstration():
    complete, stalled = (
        filter_states(KEYFRAMES[0])[-1][1],
        filter_states(torch.cat([KEYFRAMES[0, :8], KEYFRAMES[0, 7:8].expand(9, -1)]))[-1][1],
    )
    jumped = filter_states(torch.cat([KEYFRAMES[0, :2], KEYFRAMES[0, -1:].expand(9, -1)]))[-1][1]
    reverted = filter_states(torch.cat([KEYFRAMES[0], KEYFRAMES[0].flip(0)]))[-1][1]
    assert complete > 0.5 > max(stalled, reverted) and complete > jumped + 0.2


def test_potential_stays_while_the_embedding_stays():
    potentials = [potential for potential, _ in filter_states(KEYFRAMES[0, 4:5].expand(40, -1))]
    assert np.ptp(potentials[10:]) < 1e-3 and potentials[-1] == pytest.approx(4 / 11, abs=0.1)


def test_video_as_its_own_reference_gets_its_true_progress(net):
    video = episode(40, length=40)
    assert net.with_fusion("reference").config.fusion == "reference" and net.config.fusion == "mean"
    curve = score_episodes(net.with_fusion("reference"), [video], None, [video])[0]
    assert np.abs(curve.progress - true_progress(video)).mean() < 0.05
    assert voc(curve.progress) > 0.98 and curve.success[-1] > 0.5 > curve.success[len(video) // 2]


def test_other_video_of_the_task_is_ordered_in_both_directions(net):
    demonstration, video = episode(40, length=40), episode(42, length=34)
    videos = [video, reverse_episode(video, label([video])[0])]
    forward, backward = score_episodes(net.with_fusion("reference"), videos, None, [demonstration] * 2)
    assert voc(forward.progress) > 0.85 and voc(backward.progress[1:]) < -0.85


def test_reference_adds_a_perspective(net):
    videos = [episode(i, length=20) for i in (50, 51)]
    plain, same = score_episodes(net, videos), score_episodes(net, videos, None, None)
    referenced = score_episodes(net, videos, None, [episode(40)] * 2)
    for one, other, third in zip(plain, same, referenced, strict=True):
        np.testing.assert_array_equal(one.progress, other.progress)
        assert np.abs(one.progress - third.progress).max() > 1e-3
    with pytest.raises(UserError, match="needs a reference demonstration and there is none"):
        score_episodes(net.with_fusion("reference"), videos)


def reset_rows(net: ProgressNet, numbers: tuple[int, ...]) -> ProgressNetState:
    """Rows with different videos and different references."""
    videos = [episode(i, length=20) for i in numbers]
    reference = stack_demonstrations([episode(60 + i, length=30 + i) for i in numbers])
    return net.reset(views_at(videos, 0), [video.instruction for video in videos], reference=reference)


def step_rows(net: ProgressNet, state: ProgressNetState, numbers: tuple[int, ...], t: int):
    return net.step(state, views_at([episode(i, length=20) for i in numbers], t))


def test_rows_are_independent(net):
    state, batched = reset_rows(net, (1, 2, 4)), []
    for t in range(1, 6):
        output, state = step_rows(net, state, (1, 2, 4), t)
        batched.append(output)
    for row, number in enumerate((1, 2, 4)):
        single_state = reset_rows(net, (number,))
        for t in range(1, 6):
            output, single_state = step_rows(net, single_state, (number,), t)
            for name in ("progress", "success", "uncertainty"):
                expected = getattr(batched[t - 1], name)[row]
                np.testing.assert_allclose(getattr(output, name)[0], expected, atol=1e-5)


def test_take_and_put_carry_the_reference_and_the_belief(net):
    _, state = step_rows(net, reset_rows(net, (1, 2, 4)), (1, 2, 4), 9)
    rows = np.array([2, 0])
    _, new_state = step_rows(net, reset_rows(net, (5, 7)), (5, 7), 3)
    mixed, _ = step_rows(net, state.put(rows, new_state), (7, 2, 5), 10)
    kept, _ = step_rows(net, state, (1, 2, 4), 10)
    new, _ = step_rows(net, new_state, (5, 7), 10)
    np.testing.assert_allclose(mixed.progress, [new.progress[1], kept.progress[1], new.progress[0]], atol=1e-5)
    with pytest.raises(UserError, match="must all have a reference, or none"):
        state.put(rows, net.reset(views_at([episode(5), episode(7)], 0), ["go"] * 2))


def test_row_without_views_keeps_its_belief(net):
    _, state = step_rows(net, reset_rows(net, (1, 2)), (1, 2), 9)
    views = views_at([episode(i, length=20) for i in (1, 2)], 10)
    present = np.array([[True] * len(views.names), [False] * len(views.names)])
    _, next_state = net.step(state, replace(views, present=present))
    assert torch.equal(next_state.belief[1], state.belief[1]) and not torch.equal(next_state.belief[0], state.belief[0])


def test_exported_net_supports_references(net):
    exported = OnnxNet(net.config, export_graphs(net))
    for kind in ("mean", "reference"):
        videos, demonstrations = [episode(i, length=20) for i in (50, 51)], [episode(40)] * 2
        expected, actual = (
            score_episodes(model.with_fusion(kind), videos, None, demonstrations) for model in (net, exported)
        )
        for one, other in zip(expected, actual, strict=True):
            np.testing.assert_allclose(one.progress, other.progress, atol=1e-3)
            np.testing.assert_allclose(one.success, other.success, atol=1e-3)


def test_invalid_references_raise(net):
    video, reference = episode(1), stack_demonstrations([episode(2)])
    assert reference.progress.shape == (1, NUM_KEYFRAMES)
    with pytest.raises(UserError, match="2 instructions, 1 references"):
        net.reset(views_at([video] * 2, 0), ["go"] * 2, reference=reference)
    with pytest.raises(UserError, match=r"progress \[1, 32\], 1 instructions, views of 3"):
        replace(reference, views=Views(names=("front",), frames=np.zeros((3, 1, 8, 8, 3), np.uint8)))
    present = np.ones((NUM_KEYFRAMES, len(reference.views.names)), bool)
    present[3] = False
    invisible = replace(reference, views=replace(reference.views, present=present))
    with pytest.raises(UserError, match="keyframe 3 of the reference of environment 0 shows none of"):
        net.reset(views_at([video], 0), ["go"], reference=invisible)
