"""A reward from one real demonstration: order, success, and the contract of every reward model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from real_videos import bridge, encoder, with_frames

from embodied_rm.api.demonstration_reward_model import open_direction_net
from embodied_rm.data.source import stride_indices
from embodied_rm.errors import DataError, UserError
from embodied_rm.experiments.real_evaluation.video_cases import blacken, freeze_middle, freeze_start, reverse
from embodied_rm.metrics import voc
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.encoded_demonstration import demonstration_stride
from embodied_rm.models.scoring import score_episodes
from embodied_rm.types import Episode, Frames, RewardOutput, Subtask, Views

DEMONSTRATION, ROLLOUT, FAILURE = "drawer_gcbc_success", "drawer_ddpm_success", "drawer_act_fail"


@pytest.fixture(scope="module", params=[False, True], ids=["alignment alone", "with direction nets"])
def model(request: pytest.FixtureRequest) -> DemonstrationModel:
    net = open_direction_net(encoder()) if request.param else None
    return DemonstrationModel([bridge(DEMONSTRATION)], encoder(), net)


def views_of(episode: Episode) -> Views:
    return Views(names=tuple(episode.views), frames=np.stack(list(episode.views.values()), axis=1))


def score(model: DemonstrationModel, episode: Episode) -> RewardOutput:
    return score_episodes(model, [episode])[0]


def test_another_policy_is_ordered_forward_and_backward(model):
    rollout = bridge(ROLLOUT)
    assert voc(score(model, rollout).progress) > 0.9
    assert voc(score(model, with_frames(rollout, reverse)).progress) < -0.6
    itself = score(model, bridge(DEMONSTRATION)).progress
    assert voc(itself) > 0.98
    assert itself[0] < 0.1 and itself[-1] > 0.85  # although nothing changes in the second half of its time


def test_success_is_the_end_state_after_the_way(model):
    rollout = bridge(ROLLOUT)
    output = score(model, rollout)
    assert output.success[-1] > 0.7
    assert (output.success <= output.progress).all(), "an end state that is not at the end of the way is half a success"
    assert score(model, bridge(FAILURE)).success.max() < 0.3
    for make in (freeze_start, freeze_middle, reverse, blacken):
        assert score(model, with_frames(rollout, make)).success.max() < 0.5, make.__name__
    assert score(model, bridge("pnp_act_success")).success.max() < 0.5


def test_progress_depends_on_no_later_frame(model):
    rollout = bridge(ROLLOUT)
    whole, part = score(model, rollout), score(model, with_frames(rollout, lambda frames: frames[:20]))
    np.testing.assert_allclose(part.progress, whole.progress[:20], atol=1e-5)
    np.testing.assert_allclose(part.success, whole.success[:20], atol=1e-5)


def test_many_frames_at_once_equal_one_by_one_and_rows_are_independent(model):
    first, second = (views_of(bridge(name)) for name in (ROLLOUT, FAILURE))
    length = 16
    state = model.reset(first.select(np.array([0])), [""])
    at_once, _ = model.step_many(state, first.select(np.arange(1, length)))
    frames = np.concatenate([first.frames[:length, None], second.frames[:length, None]], axis=1)
    state = model.reset(Views(names=first.names, frames=frames[0]), ["", ""])
    for t in range(1, length):
        output, state = model.step(state, Views(names=first.names, frames=frames[t]))
        assert output.progress[0] == pytest.approx(at_once.progress[t - 1], abs=1e-5)
        assert output.success[0] == pytest.approx(at_once.success[t - 1], abs=1e-5)


def test_the_memory_of_a_video_does_not_grow_with_it(model):
    """Whatever its length, the state has the same numbers: a video of ten hours is scored like one of ten seconds."""
    frames = views_of(bridge(ROLLOUT))
    state, sizes = model.reset(frames.select(np.array([0])), [""]), []
    for _ in range(3):
        _, state = model.step_many(state, frames)
        sizes.append({name: value.shape for name, value in vars(state).items() if isinstance(value, torch.Tensor)})
    assert len(sizes[0]) > 10 and sizes[0] == sizes[1] == sizes[2]


def test_frames_without_an_image_are_invalid_and_change_nothing(model):
    frames = views_of(bridge(ROLLOUT)).frames[:12].copy()
    frames[5:8] = 0
    output = score_episodes(model, [replace(bridge(ROLLOUT), views={"front": frames[:, 0]})])[0]
    assert output.valid.tolist() == [not 5 <= t < 8 for t in range(12)]
    assert (output.progress[5:8] == output.progress[4]).all()
    assert np.isnan(output.ood[5:8]).all()


def test_a_video_that_stands_still_keeps_its_progress_exactly(model):
    still = score(model, with_frames(bridge(ROLLOUT), freeze_middle))
    assert (still.progress == still.progress[0]).all()


def test_one_view_may_have_any_name_and_several_may_not(model):
    frames = bridge(ROLLOUT).views["front"][:3]
    renamed = score_episodes(model, [replace(bridge(ROLLOUT), views={"my_camera": frames})])[0]
    np.testing.assert_allclose(renamed.progress, score(model, bridge(ROLLOUT)).progress[:3], atol=1e-5)
    two = replace(
        bridge(DEMONSTRATION),
        views={"left": bridge(DEMONSTRATION).views["front"], "right": bridge(DEMONSTRATION).views["front"]},
    )
    with pytest.raises(UserError, match="the demonstration has the views left, right, the video front"):
        DemonstrationModel([two], encoder()).reset(views_of(bridge(ROLLOUT)).select(np.array([0])), [""])


def test_a_lost_view_leaves_the_other():
    frames = bridge(DEMONSTRATION).views["front"]
    model = DemonstrationModel([replace(bridge(DEMONSTRATION), views={"left": frames, "right": frames})], encoder())
    rollout = bridge(ROLLOUT).views["front"]
    output = score_episodes(model, [replace(bridge(ROLLOUT), views={"right": rollout})])[0]
    assert output.valid.all()
    assert voc(output.progress) > 0.9


def test_annotated_progress_and_subtasks_are_those_of_the_video(model):
    demonstration = bridge(DEMONSTRATION)
    half = len(demonstration) // 4  # the drawer is open after a quarter of the time
    subtasks = (Subtask(name="reach", start=0, end=half), Subtask(name="open", start=half, end=len(demonstration)))
    annotated = DemonstrationModel([replace(demonstration, subtasks=subtasks)], encoder())
    output = score(annotated, demonstration)
    assert output.subtask[0] == 0
    assert output.subtask[-1] == 1
    assert output.progress[half] == pytest.approx(0.5, abs=0.15)
    assert (score(model, demonstration).subtask == -1).all()


def test_several_demonstrations_are_one_model(model):
    both = DemonstrationModel([bridge(DEMONSTRATION), bridge("drawer_act_success")], encoder(), model.direction_net)
    output = score(both, bridge(ROLLOUT))
    assert voc(output.progress) > 0.9
    assert output.success[-1] >= score(model, bridge(ROLLOUT)).success[-1] - 0.1


def test_a_state_survives_a_file_and_rows_can_be_replaced(model):
    views = views_of(bridge(ROLLOUT))
    state = model.reset(views.select(np.array([0, 10])), ["", ""])
    restored = state.from_state_dict(state.state_dict())
    frames = views.select(np.array([1, 11]))
    np.testing.assert_array_equal(model.step(state, frames)[0].progress, model.step(restored, frames)[0].progress)
    swapped = state.put(np.array([0, 1]), state.take(np.array([1, 0])))
    assert swapped.potential().tolist() == state.potential()[::-1].tolist()


@pytest.mark.parametrize("count", [0, 6])
def test_the_number_of_demonstrations_is_limited(count):
    with pytest.raises(UserError, match=f"1 to 5 demonstrations can be aligned with, got {count}"):
        DemonstrationModel([bridge(DEMONSTRATION)] * count, encoder()) if count else DemonstrationModel([], encoder())


def test_a_failed_or_a_still_demonstration_is_refused():
    with pytest.raises(UserError, match="drawer_act_fail: a demonstration must succeed"):
        DemonstrationModel([bridge(FAILURE)], encoder())
    with pytest.raises(DataError, match="all its frames look alike"):
        DemonstrationModel([with_frames(bridge(DEMONSTRATION), freeze_start)], encoder())


def blank_ends(frames: Frames) -> Frames:
    """A camera that starts late and stops early."""
    black = np.zeros_like(frames[:4])
    return np.concatenate([black, frames, black])


def test_black_frames_of_a_demonstration_are_no_keyframes(model):
    demonstration, rollout = bridge(DEMONSTRATION), bridge(ROLLOUT)
    blanked = DemonstrationModel([with_frames(demonstration, blank_ends)], encoder(), model.direction_net)
    output, expected = score(blanked, rollout), score(model, rollout)
    assert voc(output.progress) > 0.9
    assert output.success[-1] == pytest.approx(expected.success[-1], abs=0.1)
    with pytest.raises(DataError, match="all its frames look alike"):
        DemonstrationModel([with_frames(demonstration, np.zeros_like)], encoder())


def add_noise(frames: Frames) -> Frames:
    """The first image, with noise of one level."""
    noise = np.random.default_rng(0).integers(-1, 2, frames.shape)
    return np.clip(frames[:1].astype(int) + noise, 0, 255).astype(np.uint8)


def test_a_camera_that_shows_nothing_but_noise_is_left_out(model):
    demonstration, rollout = bridge(DEMONSTRATION), bridge(ROLLOUT)
    frames = demonstration.views["front"]
    with pytest.warns(UserWarning, match="nothing changes in the view broken"):
        two = DemonstrationModel(
            [replace(demonstration, views={"front": frames, "broken": add_noise(frames)})],
            encoder(),
            model.direction_net,
        )
    output = score(two, replace(rollout, views={**rollout.views, "broken": rollout.views["front"][::-1]}))
    np.testing.assert_allclose(output.success, score(model, rollout).success, atol=1e-5)
    with pytest.raises(DataError, match="all its frames look alike"):
        DemonstrationModel([with_frames(demonstration, add_noise)], encoder())


def test_the_order_of_the_views_does_not_matter():
    frames = bridge(DEMONSTRATION).views["front"]
    one, other = (replace(bridge(DEMONSTRATION), views=dict.fromkeys(names, frames)) for names in ("ab", "ba"))
    assert DemonstrationModel([one, other], encoder()).views == ("a", "b")
    with pytest.raises(UserError, match="has the views a; the first demonstration has a, b: name the same cameras"):
        DemonstrationModel([one, replace(one, views={"a": frames})], encoder())


@pytest.mark.parametrize("length", [2, 240, 241, 480, 481, 719, 960, 1000])
def test_a_thinned_demonstration_is_not_thinned_again(length):
    thinned = len(stride_indices(length, demonstration_stride(length)))
    assert thinned <= 241 and demonstration_stride(thinned) == 1


def test_goal_images_and_references_are_refused(model):
    first = views_of(bridge(ROLLOUT)).select(np.array([0]))
    with pytest.raises(UserError, match="this model takes no goal image"):
        model.reset(first, [""], goal=first)
