"""Laws of step-wise progress and of relative hops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.errors import DataError
from embodied_rm.labels.hops import hop, progress_from_subtasks, true_progress
from embodied_rm.models.potential_fusion import apply_hop
from embodied_rm.types import Episode, Subtask

shares = st.floats(0, 1, width=32)


@st.composite
def annotations(draw):
    """(steps, length): at least one step, with and without gaps before, between and behind."""
    cuts = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=12)))
    cuts = cuts[: len(cuts) // 2 * 2]
    steps = tuple(
        Subtask(name=f"s{i}", start=a, end=b) for i, (a, b) in enumerate(zip(cuts[::2], cuts[1::2], strict=True))
    )
    return steps, cuts[-1] + draw(st.integers(1, 5))


def episode(**about) -> Episode:
    frames = np.zeros((6, 8, 8, 3), np.uint8)
    return Episode(**{"name": "trial", "views": {"front": frames}, "instruction": "go", "fps": 10.0, **about})


def test_known_answer_of_two_steps_with_a_pause():
    steps = (Subtask(name="open", start=1, end=3), Subtask(name="close", start=4, end=6))
    assert progress_from_subtasks(steps, 8).tolist() == [0, 0, 0.25, 0.5, 0.5, 0.75, 1, 1]


@given(annotations())
def test_progress_of_a_success_never_falls_and_goes_from_0_to_1(annotation):
    steps, length = annotation
    progress = progress_from_subtasks(steps, length)
    assert len(progress) == length and progress[-1] == 1
    assert (np.diff(progress) >= 0).all()
    assert (progress[: steps[0].start + 1] == 0).all() and (progress[steps[-1].end :] == 1).all()
    for k, step in enumerate(steps):
        assert progress[step.start] == pytest.approx(k / len(steps))


@given(shares, shares)
def test_a_hop_lies_in_its_range_and_points_where_progress_goes(p, q):
    h = hop(p, q)
    assert -1 <= h <= 1
    assert np.sign(h) == np.sign(np.float64(q) - np.float64(p)) or abs(q - p) < 1e-37


@given(shares, shares)
def test_applying_a_hop_arrives_and_applying_the_way_back_returns(p, q):
    there = apply_hop(p, hop(p, q))
    assert there == pytest.approx(q, abs=1e-6)
    assert apply_hop(there, hop(q, p)) == pytest.approx(p, abs=1e-6)


@given(annotations())
def test_hops_along_a_success_are_never_negative_and_never_positive_backwards(annotation):
    progress = progress_from_subtasks(*annotation)
    pairs = hop(progress[:, None], progress[None])
    assert (np.triu(pairs) >= 0).all() and (np.tril(pairs) <= 0).all()
    assert (np.diff(pairs[0]) >= 0).all()


@given(arrays(np.float32, 12, elements=shares))
def test_from_the_start_a_hop_is_the_progress_and_from_the_goal_what_is_missing(progress):
    assert np.allclose(hop(0.0, progress), progress)
    assert np.allclose(1 + hop(1.0, progress), progress, atol=1e-6)


def test_nothing_is_left_to_gain_at_the_end_nor_to_lose_at_the_start():
    assert hop(1.0, 1.0) == 0 and hop(0.0, 0.0) == 0


def test_recorded_progress_comes_before_annotation():
    recorded = np.linspace(0, 0.5, 6, dtype=np.float32)
    steps = (Subtask(name="go", start=0, end=6),)
    assert true_progress(episode(progress=recorded, steps=steps, success=False)) is recorded
    assert true_progress(episode(steps=steps))[3] == 0.5


@pytest.mark.parametrize(
    ("about", "fault"),
    [
        ({"steps": (Subtask(name="go", start=0, end=3),), "success": False}, "failure without a progress column"),
        ({"success": True}, "neither annotated steps nor progress"),
    ],
)
def test_unknown_progress_is_refused_by_name(about, fault):
    with pytest.raises(DataError, match=f"trial: .*{fault}"):
        true_progress(episode(**about))
