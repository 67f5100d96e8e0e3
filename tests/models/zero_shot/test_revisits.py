"""A frame that shows what the video showed before has the curve of that time."""

from __future__ import annotations

import pytest
import torch

from embodied_rm.models.zero_shot.progress_filter import FilterState
from embodied_rm.models.zero_shot.revisits import (
    MEMORY_FRAMES,
    PastFrames,
    Revisit,
    blend_revisit,
    find_revisit,
    no_past,
    remember,
    revisit_direction,
)

WIDTH = 32


def walk(places: list[float]) -> torch.Tensor:
    """Images [T, D] of a video that walks along a way through distinct places."""
    corners = torch.cumsum(torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(0)), dim=0)
    index = torch.tensor(places)
    low = index.floor().long()
    return corners[low] + (index - low)[:, None] * (corners[low + 1] - corners[low])


def track(images: torch.Tensor) -> torch.Tensor:
    """Logits [T] of a video whose nets call every change forward, and add 1."""
    past, curve, logits = no_past((1,), WIDTH), FilterState(torch.zeros(1), torch.zeros(1)), []
    for t, image in enumerate(images):
        revisit, path = find_revisit(past, image[None])
        if t:
            curve = blend_revisit(FilterState(curve.logit + 1, curve.climb + 1), revisit)
        past = remember(past, image[None], curve, path)
        logits.append(curve.logit.item())
    return torch.tensor(logits)


def test_a_way_back_undoes_what_the_way_there_did():
    assert track(walk([0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0])).tolist() == pytest.approx(
        [0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0], abs=0.05
    )


def test_a_second_attempt_counts_as_the_first_one_and_new_frames_go_on():
    logits = track(walk([0, 1, 2, 3, 0, 1, 2, 3, 4, 5]))
    assert logits[:8].tolist() == pytest.approx([0, 1, 2, 3, 0, 1, 2, 3], abs=0.05)
    assert (logits[7:].diff() > 0.5).all()


def test_a_way_that_shows_nothing_twice_is_not_changed():
    assert track(walk(list(range(20)))).tolist() == pytest.approx(list(range(20)), abs=0.05)


def test_frames_between_those_of_the_way_there_go_back_too():
    logits = track(walk([0, 1, 2, 3, 4, 5, 4.7, 3.7, 2.7, 1.7]))
    assert (logits[6:].diff() < -0.8).all()


def test_swaying_adds_nothing():
    assert track(walk([3, 4, 3, 4, 3, 4])).tolist() == pytest.approx([0, 1, 0, 1, 0, 1])


def test_the_direction_of_a_revisit_is_that_of_its_curve():
    before = FilterState(torch.tensor([2.0, 2.0, 2.0]), torch.zeros(3))
    there = FilterState(torch.tensor([0.0, 5.0, 0.0]), torch.zeros(3))
    revisit = Revisit(torch.tensor([1.0, 1.0, 0.0]), there)
    assert revisit_direction(before, torch.tensor([0.9, -0.9, 0.5]), revisit).tolist() == pytest.approx([-1, 1, 0.5])


def test_memory_is_a_ring_of_the_last_frames():
    images = torch.randn(MEMORY_FRAMES + 9, WIDTH, generator=torch.Generator().manual_seed(1))
    past: PastFrames = no_past((1,), WIDTH)
    for t, image in enumerate(images):
        curve = FilterState(torch.tensor([float(t)]), torch.zeros(1))
        _, path = find_revisit(past, image[None])
        past = remember(past, image[None], curve, path)
    assert past.images.shape == (1, MEMORY_FRAMES, WIDTH)
    known, _ = find_revisit(past, images[50][None])
    assert known.closeness == 1 and known.curve.logit == 50
    forgotten, _ = find_revisit(past, images[3][None])
    assert forgotten.closeness < 0.3
    last, _ = find_revisit(past, images[-1][None])
    assert last.curve.logit != len(images) - 1, "the last frame is no earlier one"
