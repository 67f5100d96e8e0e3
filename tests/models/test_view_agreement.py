"""A success that each camera alone must show too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_progress_net import NAMES, NET, SENTENCES, N, assert_same, make_clip, play

from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import Demonstration
from embodied_rm.models.view_agreement import ViewAgreementModel
from embodied_rm.models.view_subset import ViewSubset
from embodied_rm.types import Views

MODEL = ViewAgreementModel(NET)


def single_view_successes(video: list[Views]) -> np.ndarray:
    """Return the success probabilities [T, V, N] of each view alone."""
    by_view = [play(ViewSubset(NET, (name,)), video)[0] for name in NAMES]
    return np.array([[output.success for output in outputs] for outputs in by_view]).swapaxes(0, 1)


def test_success_is_the_smallest_of_all_views_together_and_of_each_alone() -> None:
    video = make_clip()
    (joint, _), (agreed, _) = play(NET, video), play(MODEL, video)
    singles = single_view_successes(video)
    for together, output, alone in zip(joint, agreed, singles, strict=True):
        assert output.success == pytest.approx(np.minimum(together.success, alone.min(axis=0)), abs=1e-6)
        assert_same(replace(output, success=together.success), together)
    assert any((a.success < t.success).any() for a, t in zip(agreed, joint, strict=True)), "a view disagrees somewhere"


def test_one_camera_agrees_with_itself() -> None:
    video = make_clip(names=NAMES[:1])
    for one, other in zip(play(MODEL, video)[0], play(NET, video)[0], strict=True):
        assert np.array_equal(one.success, other.success)


def test_a_view_that_is_absent_has_no_say() -> None:
    present = np.ones((N, len(NAMES)), bool)
    present[:, 1] = False
    video = [replace(views, present=present) for views in make_clip()]
    others = [Views(names=(NAMES[0], NAMES[2]), frames=np.asarray(views.frames)[:, [0, 2]]) for views in make_clip()]
    for one, other in zip(play(MODEL, video)[0], play(MODEL, others)[0], strict=True):
        assert one.success == pytest.approx(other.success, abs=1e-5)


def test_rows_are_independent_and_states_can_be_stored() -> None:
    video, rows = make_clip(), np.array([2, 0])
    _, state = play(MODEL, video[:3])
    chosen = state.take(rows)
    stored = chosen.from_state_dict(chosen.state_dict())
    whole, _ = MODEL.step(state, video[3])
    part, _ = MODEL.step(stored, video[3].select(rows))
    assert_same(part, whole, rows)
    merged = state.put(rows, stored)
    again, _ = MODEL.step(merged, video[3])
    assert_same(again, whole)
    assert np.array_equal(merged.embedding(), state.embedding()) and len(merged) == N


def test_a_demonstration_beside_the_frames_is_refused() -> None:
    views = make_clip(1)[0]
    reference = Demonstration(views=views, instructions=SENTENCES, progress=np.zeros((N, 1), np.float32))
    with pytest.raises(UserError, match="success_in_each_view takes no demonstration"):
        MODEL.reset(views, SENTENCES, reference=reference)
