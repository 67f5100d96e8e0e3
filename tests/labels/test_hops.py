"""Progress from subtasks, and relative hops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.errors import DataError
from embodied_rm.labels.hops import hop
from embodied_rm.labels.true_progress import progress_from_subtasks, true_progress
from embodied_rm.models.potential_fusion import apply_hop
from embodied_rm.types import Episode, Subtask

fractions = st.floats(0, 1, width=32)


@st.composite
def annotations(draw):
    """Draw (subtasks, length): at least one subtask, with and without gaps before, between and after."""
    cuts = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=12)))
    cuts = cuts[: len(cuts) // 2 * 2]
    subtasks = tuple(
        Subtask(name=f"s{i}", start=a, end=b) for i, (a, b) in enumerate(zip(cuts[::2], cuts[1::2], strict=True))
    )
    return subtasks, cuts[-1] + draw(st.integers(1, 5))


def episode(**fields) -> Episode:
    frames = np.zeros((6, 8, 8, 3), np.uint8)
    return Episode(**{"name": "trial", "views": {"front": frames}, "instruction": "go", "fps": 10.0, **fields})


def test_progress_of_two_subtasks_with_a_pause():
    subtasks = (Subtask(name="open", start=1, end=3), Subtask(name="close", start=4, end=6))
    assert progress_from_subtasks(subtasks, 8).tolist() == [0, 0, 0.25, 0.5, 0.5, 0.75, 1, 1]


@given(annotations())
def test_progress_of_a_success_rises_from_0_to_1(annotation):
    subtasks, length = annotation
    progress = progress_from_subtasks(subtasks, length)
    assert len(progress) == length and progress[-1] == 1
    assert (np.diff(progress) >= 0).all()
    assert (progress[: subtasks[0].start + 1] == 0).all() and (progress[subtasks[-1].end :] == 1).all()
    for k, subtask in enumerate(subtasks):
        assert progress[subtask.start] == pytest.approx(k / len(subtasks))


@given(fractions, fractions)
def test_hop_has_the_range_and_sign_of_the_progress_change(p, q):
    h = hop(p, q)
    assert -1 <= h <= 1
    assert np.sign(h) == np.sign(np.float64(q) - np.float64(p)) or abs(q - p) < 1e-37


@given(fractions, fractions)
def test_apply_hop_inverts_hop(p, q):
    forward = apply_hop(p, hop(p, q))
    assert forward == pytest.approx(q, abs=1e-6)
    assert apply_hop(forward, hop(q, p)) == pytest.approx(p, abs=1e-6)


@given(annotations())
def test_hops_of_a_success_have_the_sign_of_the_direction(annotation):
    progress = progress_from_subtasks(*annotation)
    pairs = hop(progress[:, None], progress[None])
    assert (np.triu(pairs) >= 0).all() and (np.tril(pairs) <= 0).all()
    assert (np.diff(pairs[0]) >= 0).all()


@given(arrays(np.float32, 12, elements=fractions))
def test_hops_from_start_and_goal_give_the_progress(progress):
    assert np.allclose(hop(0.0, progress), progress)
    assert np.allclose(1 + hop(1.0, progress), progress, atol=1e-6)


def test_hops_at_the_ends_are_zero():
    assert hop(1.0, 1.0) == 0 and hop(0.0, 0.0) == 0


def test_recorded_progress_takes_precedence_over_annotation():
    recorded = np.linspace(0, 0.5, 6, dtype=np.float32)
    subtasks = (Subtask(name="go", start=0, end=6),)
    assert true_progress(episode(progress=recorded, subtasks=subtasks, success=False)) is recorded
    assert true_progress(episode(subtasks=subtasks))[3] == 0.5


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"subtasks": (Subtask(name="go", start=0, end=3),), "success": False}, "failure without a progress column"),
        ({"success": True}, "neither annotated subtasks nor progress"),
    ],
)
def test_unknown_progress_is_rejected(fields, reason):
    with pytest.raises(DataError, match=f"trial: .*{reason}"):
        true_progress(episode(**fields))
