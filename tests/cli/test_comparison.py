"""What is said of refinements side by side."""

import math
from dataclasses import replace

import pytest

from embodied_rm.cli.comparison import Cell, band_of, by_task, of_rule, ratio, summary

CELL = Cell(
    task="lift", seed=0, rule="shaped", cloned=0.3, refined=0.9, curve=(0.5, 0.85, 0.7), learned=(None, 0.9, 0.6),
    episodes=(60, 130, 200),
    seconds=10.0,
)  # fmt: skip


def cells(rule: str, *needed: int) -> list[Cell]:
    """Seeds that reach 0.8 after so many episodes of 100."""
    return [replace(CELL, seed=seed, rule=rule, curve=(0.8, 0.9) if n < 100 else (0.1, 0.2), learned=(0.5, 0.5),
                    episodes=(n, 100))
            for seed, n in enumerate(needed)]  # fmt: skip


def test_rollouts_are_those_up_to_the_iteration_that_reached_the_level():
    assert CELL.rollouts_to(0.8) == 130 and CELL.rollouts_to(0.5) == 60 and CELL.rollouts_to(0.95) is None


def test_a_median_is_known_once_more_than_half_got_there():
    assert summary(cells("shaped", 10, 20, 100), 0.8)["rollouts"] == 20
    told = summary(cells("shaped", 10, 100, 100), 0.8)
    assert told["rollouts"] is None and told["reached"] == 1 and told["seeds"] == 3
    assert summary([CELL, replace(CELL, refined=0.5)], 0.8)["worst"] == 0.5


def test_the_ratio_is_of_pairs_and_favours_who_never_got_there():
    mine, theirs = cells("shaped", 10, 20, 40, 40, 10), cells("sparse", 20, 40, 80, 100, 20)
    value, p = ratio(mine, theirs, 0.8)
    assert value == pytest.approx(math.exp((4 * math.log(0.5) + math.log(0.4)) / 5)) and p == 1 / 32
    assert ratio(mine, list(reversed(theirs)), 0.8) == (value, p)
    assert ratio(mine, theirs[:2], 0.8)[0] == pytest.approx(0.5)


def test_curves_begin_with_what_was_cloned_and_a_curve_that_stopped_stays_where_it_was():
    short = replace(CELL, cloned=0.1, curve=(0.7,), learned=(0.7,))
    mean, low, high = band_of([CELL, short])
    assert mean == pytest.approx([0.2, 0.6, 0.775, 0.7])
    assert all(bottom <= middle <= top for bottom, middle, top in zip(low, mean, high, strict=True))


def test_agreement_is_that_of_rankings_of_the_policies_that_the_model_ranks():
    assert CELL.agreement == 1
    assert replace(CELL, learned=(0.9, 0.5, 0.6)).agreement == pytest.approx(-1)
    assert math.isnan(replace(CELL, learned=(None, None, 0.5)).agreement)
    assert summary([CELL, replace(CELL, learned=(0.9, 0.5, 0.6))], 0.8)["agreement"] == pytest.approx(0)
    assert summary([replace(CELL, learned=(None,) * 3)], 0.8)["agreement"] is None


def test_cells_are_found_again():
    some = [*cells("shaped", 1, 2), *cells("sparse", 3)]
    assert [cell.episodes[0] for cell in of_rule(some, "sparse")] == [3]
    assert by_task([*some, replace(CELL, task="open")]).keys() == {"lift", "open"}
