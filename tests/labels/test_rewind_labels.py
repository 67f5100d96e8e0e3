"""Rewound clips and time labels."""

from __future__ import annotations

import numpy as np
import pytest
from annotated_episodes import abandoned, demonstrations, episode
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.labels.hops import hop
from embodied_rm.labels.rewind_labels import elapsed_fraction, label, rewind_adjacent_mask, sample_rewind
from embodied_rm.labels.schemes import LABEL_SCHEMES
from embodied_rm.labels.time_labels import label as label_by_time
from embodied_rm.labels.time_labels import linear_progress

seeds = st.integers(0, 2**32)


@given(st.integers(2, 50), seeds)
def test_rewound_clip_runs_forward_and_then_back(length, seed):
    clip = sample_rewind(length, np.random.default_rng(seed))
    turn = int(clip.argmax())
    assert (np.diff(clip[: turn + 1]) == 1).all() and (np.diff(clip[turn:]) == -1).all()
    assert turn >= 1 and turn < len(clip) - 1 and clip.min() == clip[0] >= 0 and clip.max() < length


@given(st.integers(2, 50), seeds)
def test_rewound_part_has_reversed_labels(length, seed):
    clip = sample_rewind(length, np.random.default_rng(seed))
    labels, turn = elapsed_fraction(length)[clip], int(clip.argmax())
    back = len(clip) - 1 - turn
    assert (labels[turn:] == labels[turn - back : turn + 1][::-1]).all()
    hops = hop(labels[:-1], labels[1:])
    assert (hops[:turn] > 0).all() and (hops[turn:] < 0).all()


@given(st.integers(2, 60), st.data())
def test_labels_of_a_prefix_are_rescaled(length, data):
    prefix = data.draw(st.integers(2, length))
    assert np.allclose(elapsed_fraction(length)[:prefix] * length, elapsed_fraction(prefix) * prefix)
    assert np.allclose(
        linear_progress(length)[:prefix] * (length - 1), linear_progress(prefix) * (prefix - 1), atol=1e-4
    )
    assert elapsed_fraction(length)[-1] == 1 and linear_progress(length)[0] == 0 and linear_progress(length)[-1] == 1


@given(st.integers(3, 8), seeds)
def test_rewind_pairs_of_a_batch_are_adjacent(num_frames, seed):
    rng = np.random.default_rng(seed)
    frame_indices = rng.permutation(50)[None, :num_frames]
    p, q = np.nonzero(rewind_adjacent_mask(frame_indices, rng)[0])
    rank = frame_indices[0].argsort().argsort()
    assert (np.abs(rank[p] - rank[q]) == 1).all()
    forward, back = rank[p][rank[q] > rank[p]], rank[p][rank[q] < rank[p]]
    assert len(forward) >= len(back) >= 1 and back.max() == forward.max() + 1


@given(demonstrations())
def test_failures_have_outcome_only_for_rewind_and_time_for_time(demonstration):
    success, failure = label([demonstration, abandoned(demonstration)])
    assert (
        success.progress_known.all()
        and not failure.progress_known.any()
        and failure.success_known[-1]
        and not failure.success[-1]
    )
    on_success, on_failure = label_by_time([demonstration, abandoned(demonstration)])
    assert (on_failure.progress == on_success.progress).all() and on_failure.progress_known.all()
    with pytest.raises(DataError, match="column success"):
        label([abandoned(demonstration)])


@pytest.mark.parametrize("scheme", ["change_points", "ordinal", "rewind", "time"])
def test_missing_outcome_is_rejected(scheme):
    unknown = episode([0, 4, 9], 9, success=None)
    with pytest.raises(DataError, match=f"'{scheme}' needs outcomes.*column success is missing.*embodied-rm annotate"):
        LABEL_SCHEMES[scheme].label([unknown])
    targets = LABEL_SCHEMES[scheme].label([unknown, episode([0, 4, 9], 9)])
    assert not targets[0].success_known.any() and targets[1].success_known[-1]
