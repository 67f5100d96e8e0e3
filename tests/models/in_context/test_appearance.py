"""What a demonstration changes: objects that were moved weigh, an arm that came and went does not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from embodied_rm.models.in_context.appearance import (
    advance_still_scene,
    changed_cell_weights,
    make_appearance,
    squared_distances,
    still_scene,
    weigh_cells,
)

TABLE, ARM, OBJECT = torch.eye(3)
LENGTH = 40
ARM_CELLS, OLD_CELL, NEW_CELL = range(6), 8, 11


def video() -> Tensor:
    """Cells [T, 16, 3]: an arm sweeps over six cells and returns; an object goes from one cell to another."""
    frames = TABLE.expand(LENGTH, 16, 3).clone()
    for t in range(LENGTH):
        if 4 <= t < 36:
            frames[t, ARM_CELLS[t % 6]] = ARM
        frames[t, OLD_CELL if t < 20 else NEW_CELL] = OBJECT
    return frames


def test_only_cells_that_the_demonstration_changed_for_good_weigh():
    weights = changed_cell_weights(video())
    assert weights.sum().item() == pytest.approx(1)
    assert weights[[OLD_CELL, NEW_CELL]].sum() > 0.99


def test_a_demonstration_that_changes_nothing_weighs_all_cells_alike():
    torch.testing.assert_close(changed_cell_weights(TABLE.expand(5, 16, 3).clone()), torch.full((16,), 1 / 16))


def test_the_still_scene_has_no_arm_and_keeps_the_object():
    scene = still_scene(video(), motion=0.05)
    assert (scene[LENGTH // 2, list(ARM_CELLS)] @ ARM).max() < 0.1
    assert scene[2, OLD_CELL] @ OBJECT > 0.9
    assert scene[-2, NEW_CELL] @ OBJECT > 0.9


def test_the_still_scene_has_no_direction():
    torch.testing.assert_close(still_scene(video().flip(0), 0.05).flip(0), still_scene(video(), 0.05))


def test_a_still_cell_is_taken_and_a_moving_one_is_not():
    memory, current = TABLE.expand(1, 16, 3), OBJECT.expand(1, 16, 3)
    torch.testing.assert_close(advance_still_scene(memory, current, current, 0.05), current.clone())
    assert (advance_still_scene(memory, TABLE.expand(1, 16, 3), current, 0.05) @ OBJECT).max() < 1e-6


def test_weighted_vectors_have_the_weighted_distance():
    first, second = (nn.functional.normalize(torch.randn(2, 9, 5), dim=2) for _ in range(2))
    weights = torch.tensor([0.0, 0.5, 0, 0, 0.25, 0, 0, 0.25, 0])
    vectors = [weigh_cells([frames, frames], [weights, weights]) for frames in (first, second)]
    expected = ((first - second).square().sum(dim=2) * weights).sum(dim=1)
    torch.testing.assert_close((vectors[0] - vectors[1]).square().sum(dim=1), expected)


def test_distances_are_means_over_cells():
    levels = [nn.functional.normalize(torch.randn(3, cells, 4), dim=2) for cells in (64, 64, 16)]
    coarse = make_appearance(levels).coarse
    assert coarse.shape == (3, 16, 8)
    expected = (coarse[0] - coarse[1]).square().sum(dim=1).mean()
    torch.testing.assert_close(squared_distances(coarse, coarse)[0, 1], expected, atol=1e-4, rtol=0)
    assert squared_distances(coarse, -coarse).diagonal().tolist() == pytest.approx([4, 4, 4], abs=1e-3)
