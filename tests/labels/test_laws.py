"""What every labelling scheme keeps to."""

from __future__ import annotations

import numpy as np
import pytest
from annotated import demonstrations, given_up
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.fusion import apply_hop
from embodied_rm.labels.hops import hop
from embodied_rm.labels.schemes import SCHEMES

shown = st.lists(demonstrations(), min_size=1, max_size=3)


@pytest.mark.parametrize("name", SCHEMES)
@given(episodes=shown)
def test_what_is_said_of_a_success_never_falls_and_reaches_1(name, episodes):
    """1 where a frame shows all steps behind it: where the last one ends with the recording, none does."""
    for one, targets in zip(episodes, SCHEMES[name].label(episodes), strict=True):
        said = targets.progress[targets.known]
        assert (np.diff(said) >= -1e-6).all() and said.min() >= 0 and said.max() <= 1
        assert said[-1] == pytest.approx(1) or one.steps[-1].end == len(one)
        assert targets.done[-1] and targets.done_known[-1]


@pytest.mark.parametrize("name", SCHEMES)
@given(episodes=shown, data=st.data())
def test_playing_backwards_inverts_every_hop(name, episodes, data):
    """Forwards nothing is lost, backwards nothing is gained, and the way back leads to where it began."""
    (targets, *_) = SCHEMES[name].label(episodes)
    said = targets.progress[targets.known]
    i, j = sorted(data.draw(st.tuples(*[st.integers(0, len(said) - 1)] * 2)))
    there, back = hop(said[i], said[j]), hop(said[j], said[i])
    assert there >= -1e-6 and back <= 1e-6 and (there > 1e-6) == (back < -1e-6)
    assert apply_hop(apply_hop(said[i : i + 1], there), back)[0] == pytest.approx(said[i], abs=1e-5)


@pytest.mark.parametrize("name", SCHEMES)
@given(episode=demonstrations())
def test_a_failure_is_done_nowhere_that_is_taught(name, episode):
    try:
        _, failed = SCHEMES[name].label([episode, given_up(episode)])
    except DataError as refused:
        assert "progress is unknown" in str(refused)
        return
    assert not (failed.done & failed.done_known).any() and failed.done_known[-1]
