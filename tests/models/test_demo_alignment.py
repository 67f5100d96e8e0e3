"""A demonstration in context: its way is followed both ways, causally, row by row, and only where it is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sprites import episode, episodes

from embodied_rm.errors import UserError
from embodied_rm.evaluate import reverse_episode
from embodied_rm.labels.hops import true_progress
from embodied_rm.labels.labeled_episode import label
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
from embodied_rm.train import TrainConfig, train
from embodied_rm.types import Views

WAY = torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(0)).cumsum(dim=1)
"""States of a demonstration that walk at random, so that near moments are alike."""
PROGRESS = torch.linspace(0, 1, 12)[None]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> ProgressNet:
    """A net that has learned a toy task."""
    config = TrainConfig(image_size=(32, 32), steps=60, batch_size=6, frames_per_episode=6)
    return train(episodes(9), config, RunFolder.open(tmp_path_factory.mktemp("net") / "run"), NullReporter())


def follow(states: torch.Tensor) -> list[tuple[float, float]]:
    """Potential and verdict of each of the states [T, width] after the first."""
    belief = torch.zeros_like(PROGRESS)
    belief[:, 0] = 1
    passed, said = sum_neighbors(belief), []
    for state in states[1:]:
        found = forward_filter_step(belief, passed, WAY, PROGRESS, state[None])
        belief, passed = found.belief, found.max_belief
        said.append((float(found.potential), float(found.success_score)))
    return said


def test_no_direction_of_time_is_preferred_and_beliefs_are_probabilities():
    matrix = transition_matrix(9)
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(9))
    torch.testing.assert_close(matrix, matrix.flip(0, 1))
    found = forward_filter_step(torch.full((1, 12), 1 / 12), torch.zeros(1, 12), WAY, PROGRESS, torch.randn(1, 16))
    assert float(found.belief.sum()) == pytest.approx(1, abs=1e-5)
    assert 0 <= float(found.success_score) <= 1 and (found.max_belief >= found.belief - 1e-6).all()


def test_the_demonstration_itself_is_found_at_every_timestep_forwards_and_backwards():
    there, back = follow(WAY[0]), follow(torch.cat([WAY[0], WAY[0].flip(0)]))
    np.testing.assert_allclose([p for p, _ in there], PROGRESS[0, 1:], atol=0.1)
    np.testing.assert_allclose([p for p, _ in back[11:]], PROGRESS[0].flip(0), atol=0.1)


def test_it_is_done_where_the_whole_way_was_gone_and_not_after_a_stall_or_a_leap():
    whole, stalled = follow(WAY[0])[-1][1], follow(torch.cat([WAY[0, :8], WAY[0, 7:8].expand(9, -1)]))[-1][1]
    leapt = follow(torch.cat([WAY[0, :2], WAY[0, -1:].expand(9, -1)]))[-1][1]
    undone = follow(torch.cat([WAY[0], WAY[0].flip(0)]))[-1][1]
    assert whole > 0.5 > max(stalled, undone) and whole > leapt + 0.2


def test_what_comes_next_is_no_reason_to_move_while_nothing_happens():
    held = [potential for potential, _ in follow(WAY[0, 4:5].expand(40, -1))]
    assert np.ptp(held[10:]) < 1e-3 and held[-1] == pytest.approx(4 / 11, abs=0.1)


def test_a_video_that_is_its_own_reference_gets_nearly_its_own_curve(net):
    shown = episode(40, length=40)
    known = replace(net.with_fusion("reference").config)
    assert known.fusion == "reference" and net.config.fusion == "mean"
    curve = score_episodes(net.with_fusion("reference"), [shown], None, [shown])[0]
    assert np.abs(curve.progress - true_progress(shown)).mean() < 0.05
    assert voc(curve.progress) > 0.98 and curve.success[-1] > 0.5 > curve.success[len(shown) // 2]


def test_another_video_of_the_task_is_ordered_forwards_and_backwards(net):
    shown, judged = episode(40, length=40), episode(42, length=34)
    played = [judged, reverse_episode(judged, label([judged])[0])]
    there, back = score_episodes(net.with_fusion("reference"), played, None, [shown] * 2)
    assert voc(there.progress) > 0.85 and voc(back.progress[1:]) < -0.85


def test_a_reference_adds_a_perspective_and_without_one_nothing_changes(net):
    videos = [episode(i, length=20) for i in (50, 51)]
    plain, same = score_episodes(net, videos), score_episodes(net, videos, None, None)
    shown = score_episodes(net, videos, None, [episode(40)] * 2)
    for one, other, third in zip(plain, same, shown, strict=True):
        np.testing.assert_array_equal(one.progress, other.progress)
        assert np.abs(one.progress - third.progress).max() > 1e-3
    with pytest.raises(UserError, match="needs a reference demonstration and there is none"):
        score_episodes(net.with_fusion("reference"), videos)


def begun(net: ProgressNet, numbers: tuple[int, ...]) -> ProgressNetState:
    """Rows whose videos and references all differ."""
    videos = [episode(i, length=20) for i in numbers]
    shown = stack_demonstrations([episode(60 + i, length=30 + i) for i in numbers])
    return net.reset(views_at(videos, 0), [video.instruction for video in videos], reference=shown)


def advance(net: ProgressNet, memory: ProgressNetState, numbers: tuple[int, ...], t: int):
    return net.step(memory, views_at([episode(i, length=20) for i in numbers], t))


def test_rows_are_independent_and_the_future_changes_no_past(net):
    memory, together = begun(net, (1, 2, 4)), []
    for t in range(1, 6):
        judged, memory = advance(net, memory, (1, 2, 4), t)
        together.append(judged)
    for row, number in enumerate((1, 2, 4)):
        alone = begun(net, (number,))
        for t in range(1, 6):
            judged, alone = advance(net, alone, (number,), t)
            for name in ("progress", "success", "uncertainty"):
                expected = getattr(together[t - 1], name)[row]
                np.testing.assert_allclose(getattr(judged, name)[0], expected, atol=1e-5)


def test_take_and_put_carry_the_reference_and_where_one_is_on_it(net):
    _, memory = advance(net, begun(net, (1, 2, 4)), (1, 2, 4), 9)
    rows = np.array([2, 0])
    _, fresh = advance(net, begun(net, (5, 7)), (5, 7), 3)
    mixed, _ = advance(net, memory.put(rows, fresh), (7, 2, 5), 10)
    kept, _ = advance(net, memory, (1, 2, 4), 10)
    new, _ = advance(net, fresh, (5, 7), 10)
    np.testing.assert_allclose(mixed.progress, [new.progress[1], kept.progress[1], new.progress[0]], atol=1e-5)
    with pytest.raises(UserError, match="must all have a reference, or none"):
        memory.put(rows, net.reset(views_at([episode(5), episode(7)], 0), ["go"] * 2))


def test_a_row_that_shows_nothing_stays_where_it_was(net):
    _, memory = advance(net, begun(net, (1, 2)), (1, 2), 9)
    views = views_at([episode(i, length=20) for i in (1, 2)], 10)
    present = np.array([[True] * len(views.names), [False] * len(views.names)])
    _, after = net.step(memory, replace(views, present=present))
    assert torch.equal(after.belief[1], memory.belief[1]) and not torch.equal(after.belief[0], memory.belief[0])


def test_an_exported_net_follows_a_reference_too(net):
    exported = OnnxNet(net.config, export_graphs(net))
    for kind in ("mean", "reference"):
        videos, shown = [episode(i, length=20) for i in (50, 51)], [episode(40)] * 2
        ours, theirs = (score_episodes(judge.with_fusion(kind), videos, None, shown) for judge in (net, exported))
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.progress, other.progress, atol=1e-3)
            np.testing.assert_allclose(one.success, other.success, atol=1e-3)


def test_a_mistake_gets_one_sentence(net):
    video, shown = episode(1), stack_demonstrations([episode(2)])
    assert shown.progress.shape == (1, NUM_KEYFRAMES)
    with pytest.raises(UserError, match="2 instructions, 1 references"):
        net.reset(views_at([video] * 2, 0), ["go"] * 2, reference=shown)
    with pytest.raises(UserError, match=r"progress \[1, 32\], 1 instructions, views of 3"):
        replace(shown, views=Views(names=("front",), frames=np.zeros((3, 1, 8, 8, 3), np.uint8)))
    present = np.ones((NUM_KEYFRAMES, len(shown.views.names)), bool)
    present[3] = False
    dark = replace(shown, views=replace(shown.views, present=present))
    with pytest.raises(UserError, match="keyframe 3 of the reference of environment 0 shows none of"):
        net.reset(views_at([video], 0), ["go"], reference=dark)
