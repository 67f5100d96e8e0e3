"""What is said of refinements side by side."""

import json
import math
from dataclasses import asdict, replace

import pytest

from embodied_rm.cli.comparison import (
    Cell,
    agreement,
    band_of,
    by_task,
    difference,
    of_rule,
    ratio,
    refuse_stranger,
    stages,
    summary,
)
from embodied_rm.cli.comparison_page import Comparison, markdown
from embodied_rm.errors import UserError

CELL = Cell(
    task="lift", seed=0, rule="shaped", success="model", policy="p", cloned=0.3, refined=0.9, curve=(0.5, 0.85, 0.7),
    learned=(None, 0.9, 0.6), hovers=(None, 0.5, 0.25), alarms=(), episodes=(60, 130, 200),
    seconds={"physics": 4.0, "learn": 6.0},
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


def test_who_never_got_there_needed_as_many_as_it_had_or_as_the_other_needed():
    quick, slow = cells("shaped", 10)[0], replace(cells("shaped", 40)[0], episodes=(40, 5000))
    short, long = (replace(cells("sparse", 100)[0], episodes=(last - 1, last)) for last in (30, 400))
    assert ratio([quick], [long], 0.8)[0] == pytest.approx(10 / 400)
    assert ratio([slow], [long], 0.8)[0] == pytest.approx(40 / 400), "however long the other went on once it was there"
    assert ratio([slow], [short], 0.8)[0] == 1 == ratio([short], [slow], 0.8)[0]
    assert ratio([long], [short], 0.8)[0] == 1, "neither got there"


def test_the_ratio_is_of_pairs():
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


def test_agreement_is_that_of_rankings_of_all_policies_that_the_model_ranks():
    """The policy of an iteration is watched after the one before."""
    assert agreement([CELL]) == -1, "0.9 and 0.6 of policies that have 0.5 and 0.85"
    assert agreement([replace(CELL, learned=(0.2, 0.5, 0.6))]) == pytest.approx(1)
    assert agreement([replace(CELL, learned=(None, None, 0.5))]) is None
    assert agreement([replace(CELL, success="simulator")]) is None, "who ends episodes leaves the model nothing to say"
    better = replace(CELL, cloned=0.1, curve=(0.2, 0.3, 0.0), learned=(0.1, 0.2, 0.3))
    other = replace(CELL, learned=(0.4, 0.5, 0.6))
    assert agreement([other, better]) == pytest.approx((14 - 0) / 15), "across refinements too; 0.3 twice"
    assert agreement([other, replace(better, learned=(0.95, 0.96, 0.97))]) < 0
    assert summary([replace(CELL, learned=(None,) * 3)], 0.8)["agreement"] is None


def test_what_a_budget_of_episodes_buys_is_the_last_iteration_within_it():
    assert [CELL.success_after(n) for n in (59, 60, 150, 1000)] == [0.3, 0.5, 0.85, 0.7]


def test_hovering_alarms_and_time_are_told():
    told = summary(
        [CELL, replace(CELL, hovers=(None,) * 3, alarms=(4, 5), seconds={"physics": 6.0, "learn": 14.0})], 0.8
    )
    assert (told["hovers"], told["alarms"], told["seconds"]) == (0.25, 1, 15)
    assert stages([CELL, CELL]) == {"physics": pytest.approx(0.4), "learn": pytest.approx(0.6)}


def test_the_difference_at_the_end_is_of_pairs_and_has_an_interval():
    mine = [replace(CELL, seed=seed, refined=0.9 + 0.01 * seed) for seed in range(4)]
    theirs = [replace(CELL, seed=seed, refined=0.8) for seed in range(4)]
    apart, low, high = difference(mine, theirs)
    assert apart == pytest.approx(0.115) and low < 0.115 < high and high - low < 0.1
    assert difference(mine, mine) == (0, 0, 0)


def test_cells_of_a_seed_that_began_from_different_policies_are_no_pair():
    refuse_stranger(CELL, "sparse", CELL.policy)
    with pytest.raises(UserError, match="lift, seed 0: shaped and sparse started from different policies"):
        refuse_stranger(CELL, "sparse", "other")


def test_a_cell_is_what_json_made_of_it():
    assert Cell.from_json(json.loads(json.dumps(asdict(CELL)))) == CELL


def test_every_task_has_its_rows_and_who_is_compared_with_whom_its_own():
    some = [*cells("shaped", 1, 2), *(replace(c, success="simulator") for c in cells("dense", 3, 100))]
    told = Comparison(
        rules=("shaped", "dense"), level=0.8, seeds=2, cells=[*some, *(replace(c, task="open") for c in some)]
    )
    text = "\n".join(markdown(told.tables()))
    assert "| lift | `shaped` | model | 0.30 |" in text and "| open | `dense` | simulator | 0.30 |" in text
    assert "| all | `shaped` | model | 0.30 |" in text, "the mean over tasks and seeds"
    assert "| lift | `shaped` | +0.600 |" in text, "refined less cloned"
    assert [found["success"] for found in told.numbers()["gains"]] == [pytest.approx(0.6)] * 6
    assert [(pair["tasks"], pair["other"]) for pair in told.numbers()["pairs"]] == [
        ("lift", "dense"), ("open", "dense"), ("all", "dense"),
    ]  # fmt: skip
    curve, *_ = told.story().curves
    low, high = curve.bands["shaped"]
    assert low[-1] <= curve.lines["shaped"][-1] <= high[-1]
    assert told.story().tables == told.tables(), "the run's own page tells what the Markdown tells"
    assert "| all | `shaped` / `dense` |" in text and "| `dense` | 40% | 60% |" in text


def test_cells_are_found_again():
    some = [*cells("shaped", 1, 2), *cells("sparse", 3)]
    assert [cell.episodes[0] for cell in of_rule(some, "sparse")] == [3]
    assert by_task([*some, replace(CELL, task="open")]).keys() == {"lift", "open"}
