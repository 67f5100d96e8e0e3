"""Laws of rewound clips, and of the clock that they are made from."""

from __future__ import annotations

import numpy as np
import pytest
from annotated import demonstrations, episode, given_up
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.labels.hops import hop
from embodied_rm.labels.rewind_labels import elapsed_fraction, label, rewind_adjacent_mask, sample_rewind
from embodied_rm.labels.schemes import LABEL_SCHEMES
from embodied_rm.labels.time_labels import label as by_clock
from embodied_rm.labels.time_labels import linear_progress

seeds = st.integers(0, 2**32)


@given(st.integers(2, 50), seeds)
def test_a_clip_runs_forward_and_then_back_over_what_it_showed(length, seed):
    clip = sample_rewind(length, np.random.default_rng(seed))
    turn = int(clip.argmax())
    assert (np.diff(clip[: turn + 1]) == 1).all() and (np.diff(clip[turn:]) == -1).all()
    assert turn >= 1 and turn < len(clip) - 1 and clip.min() == clip[0] >= 0 and clip.max() < length


@given(st.integers(2, 50), seeds)
def test_the_labels_of_the_rewound_tail_are_those_of_the_way_there_reversed(length, seed):
    clip = sample_rewind(length, np.random.default_rng(seed))
    labels, turn = elapsed_fraction(length)[clip], int(clip.argmax())
    back = len(clip) - 1 - turn
    assert (labels[turn:] == labels[turn - back : turn + 1][::-1]).all()
    hops = hop(labels[:-1], labels[1:])
    assert (hops[:turn] > 0).all() and (hops[turn:] < 0).all()


@given(st.integers(2, 60), st.data())
def test_labels_are_measured_from_the_true_start_and_clipping_scales(length, data):
    kept = data.draw(st.integers(2, length))
    assert np.allclose(elapsed_fraction(length)[:kept] * length, elapsed_fraction(kept) * kept)
    assert np.allclose(linear_progress(length)[:kept] * (length - 1), linear_progress(kept) * (kept - 1), atol=1e-4)
    assert elapsed_fraction(length)[-1] == 1 and linear_progress(length)[0] == 0 and linear_progress(length)[-1] == 1


@given(st.integers(3, 8), seeds)
def test_the_pairs_of_a_batch_are_steps_of_such_a_clip(timesteps, seed):
    rng = np.random.default_rng(seed)
    at = rng.permutation(50)[None, :timesteps]
    p, q = np.nonzero(rewind_adjacent_mask(at, rng)[0])
    place = at[0].argsort().argsort()
    assert (np.abs(place[p] - place[q]) == 1).all()
    forward, back = place[p][place[q] > place[p]], place[p][place[q] < place[p]]
    assert len(forward) >= len(back) >= 1 and back.max() == forward.max() + 1


@given(demonstrations())
def test_failures_teach_a_rewound_scheme_their_outcome_only_and_a_clock_the_time(shown):
    success, failure = label([shown, given_up(shown)])
    assert (
        success.progress_known.all()
        and not failure.progress_known.any()
        and failure.success_known[-1]
        and not failure.success[-1]
    )
    on_success, on_failure = by_clock([shown, given_up(shown)])
    assert (on_failure.progress == on_success.progress).all() and on_failure.progress_known.all()
    with pytest.raises(DataError, match="column success"):
        label([given_up(shown)])


@pytest.mark.parametrize("scheme", ["discovered", "ordinal", "rewind", "clock"])
def test_schemes_that_are_told_the_outcome_name_it_where_it_is_missing(scheme):
    unjudged = episode([0, 4, 9], 9, success=None)
    with pytest.raises(
        DataError, match=f"'{scheme}' are told the outcome.*column success is missing.*embodied-rm coll"
    ):
        LABEL_SCHEMES[scheme].label([unjudged])
    told = LABEL_SCHEMES[scheme].label([unjudged, episode([0, 4, 9], 9)])
    assert not told[0].success_known.any() and told[1].success_known[-1]
