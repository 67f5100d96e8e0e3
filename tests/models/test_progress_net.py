"""The contract of `ProgressNet`: causal, independent rows, any views, no side effects."""

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


def make_net(**config) -> ProgressNet:
    torch.manual_seed(2)
    net = ProgressNet(NetConfig(views=NAMES, encoder=small_encoder_config("stride_tower_tiny", (32, 32)), **config))
    with torch.no_grad():
        # Random weights predict hops near 0; larger weights make differences visible.
        for parameter in net.heads.parameters():
            parameter.mul_(3.0)
    return net.eval()


NET = make_net()


def make_clip(length: int = 5, *, n: int = N, names=NAMES, seed: int = 0, size: int = 32) -> list[Views]:
    rng = np.random.default_rng(seed)
    shape = (length, n, len(names), size, size, 3)
    return [Views(names=names, frames=frames) for frames in rng.integers(0, 256, shape, np.uint8)]


def play(net, video, sentences=SENTENCES, goal=None):
    state = net.reset(video[0], list(sentences), goal)
    outputs = []
    for views in video[1:]:
        output, state = net.step(state, views)
        outputs.append(output)
    return outputs, state


def assert_same(one, other, rows=slice(None)):
    for name in ("progress", "success", "uncertainty"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name)[rows], atol=TOLERANCE, err_msg=name)
    for name in ("subtask", "valid"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[rows])


def test_predictions_are_in_range():
    assert isinstance(NET, RewardModel)
    state: RewardState = NET.reset(make_clip()[0], list(SENTENCES))
    assert state.potential().tolist() == [0.0] * N
    outputs, state = play(NET, make_clip(12))
    for output in outputs:
        for value in (output.progress, output.success):
            assert value.dtype == np.float32 and ((value >= 0) & (value <= 1)).all()
        assert (output.uncertainty >= 0).all() and output.valid.all() and output.subtask.dtype == np.int64
    assert np.ptp([output.progress for output in outputs]) > 0.05, (
        "the untrained net predicts too little to test anything"
    )
    np.testing.assert_array_equal(state.potential(), outputs[-1].progress)


@pytest.mark.parametrize("with_goal", [False, True])
@pytest.mark.parametrize("fusion", [f for f in FUSION_KINDS if f not in ("backward", "reference")])
def test_rows_are_independent(fusion, with_goal):
    net = make_net(fusion=fusion)
    goal = make_clip(seed=9)[0] if with_goal else None
    batched, _ = play(net, make_clip(), goal=goal)
    for row in range(N):
        index = np.array([row])
        single, _ = play(
            net,
            [v.select(index) for v in make_clip()],
            SENTENCES[row : row + 1],
            None if goal is None else goal.select(index),
        )
        for one, all_rows in zip(single, batched, strict=True):
            assert_same(one, all_rows, index)


def test_with_fusion_equals_a_net_with_that_fusion():
    goal = make_clip(seed=9)[0]
    curves = {}
    for fusion in (f for f in FUSION_KINDS if f != "reference"):
        curves[fusion], _ = play(NET.with_fusion(fusion), make_clip(), goal=goal)
        for one, other in zip(curves[fusion], play(make_net(fusion=fusion), make_clip(), goal=goal)[0], strict=True):
            assert_same(one, other)
    assert NET.config.fusion == "mean" and NET.with_fusion("forward").heads is NET.heads
    values = {fusion: outputs[-1].progress for fusion, outputs in curves.items()}
    assert all(np.abs(values["mean"] - values[f]).max() > 1e-3 for f in values if f != "mean")


def test_forward_ignores_intermediate_frames_and_backward_needs_a_goal():
    video = make_clip(5)
    net = NET.with_fusion("forward")
    short, long = play(net, [video[0], video[4]])[0], play(net, video)[0]
    np.testing.assert_allclose(short[-1].progress, long[-1].progress, atol=TOLERANCE)
    with pytest.raises(UserError, match="fusion=backward needs a goal image"):
        NET.with_fusion("backward").reset(video[0], list(SENTENCES))


def test_expected_error_is_carried_and_bounds_the_uncertainty():
    video = make_clip(3)
    initial_state = NET.reset(video[0], list(SENTENCES))
    first, state = NET.step(initial_state, video[1])
    second, next_state = NET.step(state, video[2])
    expected = [
        NET.heads.expected_error(m.first_embedding, m.previous_embedding).detach().numpy() for m in (state, next_state)
    ]
    hop = NET.heads.hop(state.previous_embedding, next_state.previous_embedding).detach().numpy()
    np.testing.assert_allclose(state.expected_error, expected[0] / 2, atol=TOLERANCE)
    np.testing.assert_allclose(
        next_state.expected_error, propagate_error(state.expected_error.numpy(), hop, expected[1]), atol=TOLERANCE
    )
    for output, error in ((first, state.expected_error.numpy()), (second, next_state.expected_error.numpy())):
        assert (output.uncertainty >= error).all() and (output.uncertainty <= np.hypot(error, 0.5) + TOLERANCE).all()


def test_predictions_are_causal():
    short, _ = play(NET, make_clip(4))
    long, _ = play(NET, make_clip(4) + make_clip(3, seed=1))
    for prefix, full in zip(short, long[: len(short)], strict=True):
        assert_same(prefix, full)


def test_step_changes_neither_state_nor_model_nor_mode():
    video, net = make_clip(), make_net()
    state = net.reset(video[0], list(SENTENCES))
    before = {f.name: v.clone() for f in fields(state) if (v := getattr(state, f.name)) is not None}
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    net.train()
    first, _ = net.step(state, video[1])
    again, _ = net.step(state, video[1])
    assert_same(first, again)
    assert net.training
    assert all(torch.equal(getattr(state, name), tensor) for name, tensor in before.items())
    assert all(torch.equal(tensor, weights[name]) for name, tensor in net.state_dict().items())


def test_order_of_views_does_not_matter():
    mixed = (2, 0, 1)
    other = [Views(names=tuple(NAMES[i] for i in mixed), frames=v.frames[:, mixed]) for v in make_clip()]
    for one, two in zip(play(NET, make_clip())[0], play(NET, other)[0], strict=True):
        assert_same(one, two)


def test_absent_view_equals_missing_view():
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
    masked = [Views(names=NAMES, frames=v.frames, present=mask) for v in video]
    overpainted = [np.where(mask[:, :, None, None, None], v.frames, np.uint8(gray)) for v in video]
    other = [Views(names=NAMES, frames=frames, present=mask) for frames in overpainted]
    for one, two in zip(play(NET, masked)[0], play(NET, other)[0], strict=True):
        assert_same(one, two)
        np.testing.assert_array_equal(one.valid, mask.any(axis=1))


def test_row_without_views_carries_its_prediction():
    video = make_clip(4)
    _, state = play(NET, video[:3])
    visible = np.ones((N, 3), bool)
    visible[1] = False
    output, next_state = NET.step(state, Views(names=NAMES, frames=make_clip(seed=5)[0].frames, present=visible))
    assert output.valid.tolist() == [True, False, True, True]
    assert output.progress[1] == state.potential()[1] and output.uncertainty[1] == 0
    row = np.array([1])
    resumed, _ = NET.step(next_state.take(row), video[3].select(row))
    uninterrupted, _ = NET.step(state.take(row), video[3].select(row))
    assert_same(resumed, uninterrupted)


def test_row_without_first_views_starts_at_its_first_image():
    video = make_clip(4)
    visible = Views(names=NAMES, frames=video[0].frames, present=np.zeros((N, 3), bool))
    late, _ = play(NET, [visible, *video])
    immediate, state = play(NET, [video[0], *video])
    assert state.has_observation.all()
    for one, other in zip(late, immediate, strict=True):
        assert_same(one, other)


def test_tensor_and_array_frames_are_bit_identical():
    present = np.random.default_rng(4).random((N, 3)) < 0.6
    arrays = [Views(names=NAMES, frames=v.frames, present=present) for v in make_clip()]
    tensors = [Views(names=NAMES, frames=torch.from_numpy(v.frames), present=present) for v in make_clip()]
    for one, other in zip(play(NET, tensors)[0], play(NET, arrays)[0], strict=True):
        for name in vars(one):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    rows = np.array([2, 0])
    assert torch.equal(tensors[0].select(rows).frames, torch.from_numpy(arrays[0].select(rows).frames))


def test_images_are_resized():
    flat = [v.frames[:, :, :1, :1] for v in make_clip()]
    small, large = (
        [Views(names=NAMES, frames=np.tile(f, (1, 1, *size, 1))) for f in flat] for size in ((32, 32), (96, 48))
    )
    for one, other in zip(play(NET, large)[0], play(NET, small)[0], strict=True):
        assert_same(one, other)


def test_instruction_changes_the_prediction():
    video = [v.select(np.zeros(2, np.int64)) for v in make_clip()]
    same, _ = play(NET, video, ["lift the red cube"] * 2)
    differ, _ = play(NET, video, ["lift the red cube", "open the drawer"])
    assert abs(same[-1].progress[0] - same[-1].progress[1]) < TOLERANCE
    assert abs(differ[-1].success[0] - differ[-1].success[1]) > 1e-4


def test_take_and_put_are_indexing_and_assignment():
    _, state = play(NET, make_clip())
    rows = np.array([2, 0])
    taken = state.take(rows)
    assert len(taken) == 2
    np.testing.assert_array_equal(taken.potential(), state.potential()[rows])
    np.testing.assert_array_equal(state.put(rows, taken).potential(), state.potential())
    new_state = NET.reset(make_clip(seed=3)[0].select(rows), ["open the drawer"] * 2)
    mixed = state.put(rows, new_state)
    assert mixed.potential()[[2, 0]].tolist() == [0, 0]
    output, _ = NET.step(mixed, make_clip(seed=4)[0])
    single, _ = NET.step(new_state, make_clip(seed=4)[0].select(rows))
    untouched, _ = NET.step(state, make_clip(seed=4)[0])
    assert_same(single, output, rows)
    np.testing.assert_allclose(output.progress[[1, 3]], untouched.progress[[1, 3]], atol=TOLERANCE)


def test_goal_changes_all_predictions():
    goal = make_clip(seed=9)[0]
    with_goal, state = play(NET, make_clip(), goal=goal)
    assert state.goal_embedding is not None
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
def test_invalid_calls_raise(call, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        call()
