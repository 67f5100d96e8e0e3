"""The contract of `ProgressNet`: causal, row-wise independent, any views, nothing changed behind the caller's back."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_rm.errors import UserError
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.potential_fusion import FUSION_KINDS, propagate_error
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.reward_model import RewardModel, RewardState
from embodied_rm.types import Views

NAMES = ("front", "side", "wrist")
SENTENCES = ("lift the red cube", "open the drawer", "lift the blue cube", "put the cube away")
N = len(SENTENCES)
TOLERANCE = 1e-5


def make_net(**about) -> ProgressNet:
    torch.manual_seed(2)
    net = ProgressNet(NetConfig(views=NAMES, encoder=small_encoder_config("stride_tower_tiny", (32, 32)), **about))
    with torch.no_grad():
        # Random weights hop by next to nothing; louder ones make every difference show.
        for parameter in net.heads.parameters():
            parameter.mul_(3.0)
    return net.eval()


NET = make_net()


def make_clip(length: int = 5, *, n: int = N, names=NAMES, seed: int = 0, size: int = 32) -> list[Views]:
    rng = np.random.default_rng(seed)
    shape = (length, n, len(names), size, size, 3)
    return [Views(names=names, frames=frames) for frames in rng.integers(0, 256, shape, np.uint8)]


def play(net, video, sentences=SENTENCES, goal=None):
    memory = net.reset(video[0], list(sentences), goal)
    judged = []
    for views in video[1:]:
        progress, memory = net.step(memory, views)
        judged.append(progress)
    return judged, memory


def assert_same(one, other, rows=slice(None)):
    for name in ("progress", "success", "uncertainty"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name)[rows], atol=TOLERANCE, err_msg=name)
    for name in ("subtask", "valid"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[rows])


def test_it_is_a_reward_model_and_its_values_are_in_range():
    assert isinstance(NET, RewardModel)
    memory: RewardState = NET.reset(make_clip()[0], list(SENTENCES))
    assert memory.potential().tolist() == [0.0] * N
    judged, memory = play(NET, make_clip(12))
    for progress in judged:
        for value in (progress.progress, progress.success):
            assert value.dtype == np.float32 and ((value >= 0) & (value <= 1)).all()
        assert (progress.uncertainty >= 0).all() and progress.valid.all() and progress.subtask.dtype == np.int64
    assert np.ptp([p.progress for p in judged]) > 0.05, "the untrained net says too little to test anything"
    np.testing.assert_array_equal(memory.potential(), judged[-1].progress)


@pytest.mark.parametrize("with_goal", [False, True])
@pytest.mark.parametrize("fusion", [f for f in FUSION_KINDS if f not in ("backward", "reference")])
def test_a_row_gets_in_a_batch_what_it_gets_alone(fusion, with_goal):
    net = make_net(fusion=fusion)
    goal = make_clip(seed=9)[0] if with_goal else None
    together, _ = play(net, make_clip(), goal=goal)
    for row in range(N):
        index = np.array([row])
        alone, _ = play(
            net,
            [v.select(index) for v in make_clip()],
            SENTENCES[row : row + 1],
            None if goal is None else goal.select(index),
        )
        for one, all_rows in zip(alone, together, strict=True):
            assert_same(one, all_rows, index)


def test_another_fusion_of_the_same_weights_says_what_a_net_of_that_fusion_says():
    goal = make_clip(seed=9)[0]
    said = {}
    for fusion in (f for f in FUSION_KINDS if f != "reference"):
        said[fusion], _ = play(NET.with_fusion(fusion), make_clip(), goal=goal)
        for one, other in zip(said[fusion], play(make_net(fusion=fusion), make_clip(), goal=goal)[0], strict=True):
            assert_same(one, other)
    assert NET.config.fusion == "mean" and NET.with_fusion("forward").heads is NET.heads
    values = {fusion: judged[-1].progress for fusion, judged in said.items()}
    assert all(np.abs(values["mean"] - values[f]).max() > 1e-3 for f in values if f != "mean")


def test_forward_does_not_depend_on_the_way_and_backward_needs_a_goal():
    video = make_clip(5)
    net = NET.with_fusion("forward")
    short, long = play(net, [video[0], video[4]])[0], play(net, video)[0]
    np.testing.assert_allclose(short[-1].progress, long[-1].progress, atol=TOLERANCE)
    with pytest.raises(UserError, match="fusion=backward needs a goal image"):
        NET.with_fusion("backward").reset(video[0], list(SENTENCES))


def test_doubt_is_carried_and_spread_is_never_below_it():
    video = make_clip(3)
    opened = NET.reset(video[0], list(SENTENCES))
    one, memory = NET.step(opened, video[1])
    two, after = NET.step(memory, video[2])
    expected = [
        NET.heads.expected_error(m.first_embedding, m.previous_embedding).detach().numpy() for m in (memory, after)
    ]
    hop = NET.heads.hop(memory.previous_embedding, after.previous_embedding).detach().numpy()
    np.testing.assert_allclose(memory.expected_error, expected[0] / 2, atol=TOLERANCE)
    np.testing.assert_allclose(
        after.expected_error, propagate_error(memory.expected_error.numpy(), hop, expected[1]), atol=TOLERANCE
    )
    for judged, said in ((one, memory.expected_error.numpy()), (two, after.expected_error.numpy())):
        assert (judged.uncertainty >= said).all() and (judged.uncertainty <= np.hypot(said, 0.5) + TOLERANCE).all()


def test_appending_frames_changes_no_past_score():
    short, _ = play(NET, make_clip(4))
    long, _ = play(NET, make_clip(4) + make_clip(3, seed=1))
    for early, late in zip(short, long[: len(short)], strict=True):
        assert_same(early, late)


def test_judging_changes_neither_memory_nor_model_nor_mode():
    video, net = make_clip(), make_net()
    memory = net.reset(video[0], list(SENTENCES))
    before = {f.name: v.clone() for f in fields(memory) if (v := getattr(memory, f.name)) is not None}
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    net.train()
    first, _ = net.step(memory, video[1])
    again, _ = net.step(memory, video[1])
    assert_same(first, again)
    assert net.training
    assert all(torch.equal(getattr(memory, name), tensor) for name, tensor in before.items())
    assert all(torch.equal(tensor, weights[name]) for name, tensor in net.state_dict().items())


def test_the_order_of_the_views_does_not_matter():
    mixed = (2, 0, 1)
    other = [Views(names=tuple(NAMES[i] for i in mixed), frames=v.frames[:, mixed]) for v in make_clip()]
    for one, two in zip(play(NET, make_clip())[0], play(NET, other)[0], strict=True):
        assert_same(one, two)


def test_a_view_that_is_not_present_is_as_one_that_is_not_there():
    two = [Views(names=NAMES[:2], frames=v.frames[:, :2]) for v in make_clip()]
    present = np.array([[True, True, False]] * N)
    three = [Views(names=NAMES, frames=v.frames, present=present) for v in make_clip()]
    for one, other in zip(play(NET, two)[0], play(NET, three)[0], strict=True):
        assert_same(one, other)
    assert not np.allclose(play(NET, two)[0][-1].progress, play(NET, make_clip())[0][-1].progress, atol=1e-3)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=N, max_size=N), st.integers(0, 255))
def test_pixels_of_absent_views_are_never_read(present, gray):
    mask = np.array(present)
    video = make_clip(3)
    shown = [Views(names=NAMES, frames=v.frames, present=mask) for v in video]
    painted = [np.where(mask[:, :, None, None, None], v.frames, np.uint8(gray)) for v in video]
    other = [Views(names=NAMES, frames=frames, present=mask) for frames in painted]
    for one, two in zip(play(NET, shown)[0], play(NET, other)[0], strict=True):
        assert_same(one, two)
        np.testing.assert_array_equal(one.valid, mask.any(axis=1))


def test_a_row_that_shows_nothing_carries_its_prediction_and_goes_on_as_if_nothing_had_been():
    video = make_clip(4)
    _, memory = play(NET, video[:3])
    blind = np.ones((N, 3), bool)
    blind[1] = False
    held, after = NET.step(memory, Views(names=NAMES, frames=make_clip(seed=5)[0].frames, present=blind))
    assert held.valid.tolist() == [True, False, True, True]
    assert held.progress[1] == memory.potential()[1] and held.uncertainty[1] == 0
    row = np.array([1])
    resumed, _ = NET.step(after.take(row), video[3].select(row))
    straight, _ = NET.step(memory.take(row), video[3].select(row))
    assert_same(resumed, straight)


def test_a_row_that_shows_nothing_at_first_opens_with_its_first_image():
    video = make_clip(4)
    blind = Views(names=NAMES, frames=video[0].frames, present=np.zeros((N, 3), bool))
    late, _ = play(NET, [blind, *video])
    prompt, memory = play(NET, [video[0], *video])
    assert memory.has_observation.all()
    for one, other in zip(late, prompt, strict=True):
        assert_same(one, other)


def test_tensors_are_judged_as_arrays_to_the_last_bit():
    present = np.random.default_rng(4).random((N, 3)) < 0.6
    arrays = [Views(names=NAMES, frames=v.frames, present=present) for v in make_clip()]
    tensors = [Views(names=NAMES, frames=torch.from_numpy(v.frames), present=present) for v in make_clip()]
    for one, other in zip(play(NET, tensors)[0], play(NET, arrays)[0], strict=True):
        for name in vars(one):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    rows = np.array([2, 0])
    assert torch.equal(tensors[0].select(rows).frames, torch.from_numpy(arrays[0].select(rows).frames))


def test_images_of_another_size_are_brought_to_that_of_the_net():
    flat = [v.frames[:, :, :1, :1] for v in make_clip()]
    small, large = (
        [Views(names=NAMES, frames=np.tile(f, (1, 1, *size, 1))) for f in flat] for size in ((32, 32), (96, 48))
    )
    for one, other in zip(play(NET, large)[0], play(NET, small)[0], strict=True):
        assert_same(one, other)


def test_the_instruction_matters_and_equal_ones_are_read_alike():
    video = [v.select(np.zeros(2, np.int64)) for v in make_clip()]
    same, _ = play(NET, video, ["lift the red cube"] * 2)
    differ, _ = play(NET, video, ["lift the red cube", "open the drawer"])
    assert abs(same[-1].progress[0] - same[-1].progress[1]) < TOLERANCE
    assert abs(differ[-1].success[0] - differ[-1].success[1]) > 1e-4


def test_take_and_put_are_indexing_and_assignment():
    _, memory = play(NET, make_clip())
    rows = np.array([2, 0])
    taken = memory.take(rows)
    assert len(taken) == 2
    np.testing.assert_array_equal(taken.potential(), memory.potential()[rows])
    np.testing.assert_array_equal(memory.put(rows, taken).potential(), memory.potential())
    fresh = NET.reset(make_clip(seed=3)[0].select(rows), ["open the drawer"] * 2)
    mixed = memory.put(rows, fresh)
    assert mixed.potential()[[2, 0]].tolist() == [0, 0]
    after, _ = NET.step(mixed, make_clip(seed=4)[0])
    alone, _ = NET.step(fresh, make_clip(seed=4)[0].select(rows))
    untouched, _ = NET.step(memory, make_clip(seed=4)[0])
    assert_same(alone, after, rows)
    np.testing.assert_allclose(after.progress[[1, 3]], untouched.progress[[1, 3]], atol=TOLERANCE)


def test_a_goal_changes_the_prediction_and_lasts():
    goal = make_clip(seed=9)[0]
    with_goal, memory = play(NET, make_clip(), goal=goal)
    assert memory.goal_embedding is not None
    assert not np.allclose(with_goal[-1].progress, play(NET, make_clip())[0][-1].progress, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NET.reset(make_clip()[0], ["one"]), "4, 1 instructions"),
        (lambda: Views(names=("front",), frames=torch.zeros(2, 1, 4, 4, 3)), r"got float32 \[2, 1, 4, 4, 3\]"),
        (lambda: NET.reset(make_clip()[0], list(SENTENCES), make_clip(n=2)[0]), "2 goals"),
        (lambda: NET.step(NET.reset(make_clip()[0], list(SENTENCES)), make_clip(n=3)[0]), "4 environments, got 3"),
        (
            lambda: NET.reset(make_clip(names=("frnt",))[0], list(SENTENCES)),
            "unknown view 'frnt'. Did you mean 'front'",
        ),
        (
            lambda: NET.reset(
                make_clip()[0],
                list(SENTENCES),
                Views(names=NAMES, frames=make_clip()[0].frames, present=np.arange(N * 3).reshape(N, 3) < 9),
            ),
            "the goal of environment 3 shows none of front, side, wrist",
        ),
        (
            lambda: NET.reset(make_clip()[0], list(SENTENCES)).put(
                np.array([0]), NET.reset(make_clip(n=1)[0], ["go"], make_clip(n=1)[0])
            ),
            "must all have a goal image, or none",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(call, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        call()
