"""Laws of replaced words: what tells two goals apart stays, everything else may go."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.train.instruction_augment import InstructionAugmenter

TOLD = [
    ("push", f"{color} {thing} {side}", f"{verb} the {color} {thing} into the {side} zone")
    for verb in ("push", "move")
    for color in ("red", "blue")
    for thing in ("cube", "ball")
    for side in ("left", "right")
]
TOLD += [("open", "open", "open the drawer")]
BOTH_WAYS = [*TOLD, ("open", "not: open", "close the drawer"), ("open", "not: open", "push the drawer shut")]
TEXT = "first, shove the red cube: onto the left patch"


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
def test_colors_things_and_sides_stay(seed, share):
    told = InstructionAugmenter(TOLD, ("pelican",), share).augment(TEXT, "push", np.random.default_rng(seed)).split()
    kept = [word for word in told if word != "pelican"]
    assert len(told) == len(TEXT.split()) and set(kept) <= set(TEXT.split())
    assert {"red", "cube:", "left"} <= set(kept)


def test_words_are_replaced_as_often_as_said():
    rng, wording = np.random.default_rng(0), InstructionAugmenter(TOLD, ("pelican",), 0.3)
    replaced = np.mean([wording.augment("open the drawer", "open", rng).count("pelican") / 3 for _ in range(2000)])
    assert abs(replaced - 0.3) < 0.02


def test_what_tells_a_video_from_the_same_one_backwards_stays():
    rng, wording = np.random.default_rng(0), InstructionAugmenter(BOTH_WAYS, ("pelican",), 0.9)
    for sentence, telling in (("open the drawer", {"open"}), ("push the drawer shut", {"push", "shut"})):
        told = [set(wording.augment(sentence, "open", rng).split()) for _ in range(50)]
        assert all(telling <= words for words in told) and any("pelican" in words for words in told)


def test_a_share_of_0_changes_nothing_and_draws_nothing():
    rng = np.random.default_rng(0)
    assert InstructionAugmenter(TOLD, (), 0.0).augment(TEXT, "push", rng) == TEXT
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
