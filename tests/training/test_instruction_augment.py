"""Word replacement keeps the words that discriminate between goals."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.training.instruction_augment import InstructionAugmenter

EXAMPLES = [
    ("push", f"{color} {shape} {side}", f"{verb} the {color} {shape} into the {side} zone")
    for verb in ("push", "move")
    for color in ("red", "blue")
    for shape in ("cube", "ball")
    for side in ("left", "right")
]
EXAMPLES += [("open", "open", "open the drawer")]
EXAMPLES_WITH_REVERSALS = [
    *EXAMPLES,
    ("open", "not: open", "close the drawer"),
    ("open", "not: open", "push the drawer shut"),
]
TEXT = "first, shove the red cube: onto the left patch"


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
def test_colors_objects_and_sides_are_kept(seed, fraction):
    words = (
        InstructionAugmenter(EXAMPLES, ("pelican",), fraction)
        .augment(TEXT, "push", np.random.default_rng(seed))
        .split()
    )
    kept = [word for word in words if word != "pelican"]
    assert len(words) == len(TEXT.split()) and set(kept) <= set(TEXT.split())
    assert {"red", "cube:", "left"} <= set(kept)


def test_words_are_replaced_with_the_given_probability():
    rng, augmenter = np.random.default_rng(0), InstructionAugmenter(EXAMPLES, ("pelican",), 0.3)
    replaced = np.mean([augmenter.augment("open the drawer", "open", rng).count("pelican") / 3 for _ in range(2000)])
    assert abs(replaced - 0.3) < 0.02


def test_words_that_discriminate_a_video_from_its_reversal_are_kept():
    rng, augmenter = np.random.default_rng(0), InstructionAugmenter(EXAMPLES_WITH_REVERSALS, ("pelican",), 0.9)
    for instruction, discriminative in (("open the drawer", {"open"}), ("push the drawer shut", {"push", "shut"})):
        samples = [set(augmenter.augment(instruction, "open", rng).split()) for _ in range(50)]
        assert all(discriminative <= words for words in samples) and any("pelican" in words for words in samples)


def test_probability_0_changes_nothing_and_draws_nothing():
    rng = np.random.default_rng(0)
    assert InstructionAugmenter(EXAMPLES, (), 0.0).augment(TEXT, "push", rng) == TEXT
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
