"""Annotated episodes for the tests of labels, by hypothesis."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from embodied_rm.types import Episode, Subtask

NAMES = ("reach", "grasp", "lift", "place")


def episode(edges: list[int], length: int, *, seed: int = 0, names: tuple[str, ...] = NAMES, **about) -> Episode:
    """Steps between the edges, noise for images."""
    views = {
        name: np.random.default_rng([seed, i]).integers(0, 256, (length, 16, 16, 3), np.uint8)
        for i, name in enumerate(("front", "top"))
    }
    steps = tuple(Subtask(name=name, start=a, end=b) for name, (a, b) in zip(names, pairwise(edges), strict=False))
    known = {"name": "trial", "instruction": "go", "fps": 10.0, "success": True, "meta": {"task": "t"}}
    return Episode(**{"views": views, "steps": steps, **known, **about})


@st.composite
def demonstrations(draw):
    """A success of 1 to 4 steps that begin one where the other ends, of any lengths, perhaps with pauses around."""
    length = draw(st.integers(6, 40))
    edges = sorted(draw(st.sets(st.integers(0, length), min_size=2, max_size=5)))
    return episode(edges, length, seed=draw(st.integers(0, 99)))


def given_up(shown: Episode) -> Episode:
    """The same, known to have failed in its last step."""
    return Episode(**{**vars(shown), "success": False, "name": "failure"})
