"""Success needs the end state and the way to it."""

from __future__ import annotations

import torch

from embodied_rm.models.in_context.success import FULL_COVERAGE, EndEvidence, success_score


def score(to_start: float, to_end: float, coverage: float) -> float:
    return success_score(EndEvidence(*(torch.tensor([x]) for x in (to_start, to_end, coverage)))).item()


def test_the_end_after_the_way_is_success():
    assert score(to_start=2.0, to_end=0.3, coverage=0.8) > 0.95


def test_without_the_end_or_without_the_way_there_is_none():
    assert score(to_start=0.3, to_end=2.0, coverage=0.8) < 0.05  # back at the start
    assert score(to_start=3.0, to_end=3.0, coverage=0.8) < 0.05  # another scene
    assert score(to_start=2.0, to_end=0.3, coverage=0.05) < 0.2  # the end, from the first frame on


def test_each_piece_of_evidence_counts_in_one_direction():
    base = score(1.5, 1.0, 0.3)
    assert score(2.0, 1.0, 0.3) > base
    assert score(1.5, 1.2, 0.3) < base
    assert score(1.5, 1.0, 0.2) < base
    assert score(1.5, 1.0, FULL_COVERAGE) == score(1.5, 1.0, 1.0)
