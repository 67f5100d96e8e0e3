"""What is said of refinements side by side."""

import json
import math
from dataclasses import asdict, replace

import pytest

from embodied_rm.errors import UserError
from embodied_rm.experiments.comparison import (
    CellResult,
    check_same_policy,
    filter_by_rule,
    group_by_task,
    phase_time_shares,
    ranking_agreement,
    rollout_ratio,
    success_band,
    success_difference,
    summarize_cells,
)
from embodied_rm.experiments.comparison_page import Comparison, markdown_tables

CELL = CellResult(
    task="lift", seed=0, rule="shaped", success_source="model", policy_digest="p", cloned_success=0.3, refined_success=0.9, success_curve=(0.5, 0.85, 0.7),
    predicted_success=(None, 0.9, 0.6), hover_rates=(None, 0.5, 0.25), alarm_iterations=(), cumulative_episodes=(60, 130, 200),
    seconds_by_phase={"physics": 4.0, "learn": 6.0},
)  # fmt: skip


def cells(rule: str, *needed: int) -> list[CellResult]:
    """Seeds that reach 0.8 after so many episodes of 100."""
    return [replace(CELL, seed=seed, rule=rule, success_curve=(0.8, 0.9) if n < 100 else (0.1, 0.2), predicted_success=(0.5, 0.5),
                    cumulative_episodes=(n, 100))
            for seed, n in enumerate(needed)]  # fmt: skip


def test_rollouts_are_those_up_to_the_iteration_that_reached_the_level():
    assert (
        CELL.rollouts_to_success(0.8) == 130
        and CELL.rollouts_to_success(0.5) == 60
        and CELL.rollouts_to_success(0.95) is None
    )


def test_a_median_is_known_once_more_than_half_got_there():
    assert summarize_cells(cells("shaped", 10, 20, 100), 0.8)["rollouts_to_target"] == 20
    told = summarize_cells(cells("shaped", 10, 100, 100), 0.8)
    assert told["rollouts_to_target"] is None and told["num_reached"] == 1 and told["seeds"] == 3
    assert summarize_cells([CELL, replace(CELL, refined_success=0.5)], 0.8)["worst_seed"] == 0.5


def test_who_never_got_there_needed_as_many_as_it_had_or_as_the_other_needed():
    quick, slow = cells("shaped", 10)[0], replace(cells("shaped", 40)[0], cumulative_episodes=(40, 5000))
    short, long = (replace(cells("sparse", 100)[0], cumulative_episodes=(last - 1, last)) for last in (30, 400))
    assert rollout_ratio([quick], [long], 0.8)[0] == pytest.approx(10 / 400)
    assert rollout_ratio([slow], [long], 0.8)[0] == pytest.approx(40 / 400), (
        "however long the other went on once it was there"
    )
    assert rollout_ratio([slow], [short], 0.8)[0] == 1 == rollout_ratio([short], [slow], 0.8)[0]
    assert rollout_ratio([long], [short], 0.8)[0] == 1, "neither got there"


def test_the_ratio_is_of_pairs():
    mine, theirs = cells("shaped", 10, 20, 40, 40, 10), cells("sparse", 20, 40, 80, 100, 20)
    value, p = rollout_ratio(mine, theirs, 0.8)
    assert value == pytest.approx(math.exp((4 * math.log(0.5) + math.log(0.4)) / 5)) and p == 1 / 32
    assert rollout_ratio(mine, list(reversed(theirs)), 0.8) == (value, p)
    assert rollout_ratio(mine, theirs[:2], 0.8)[0] == pytest.approx(0.5)


def test_curves_begin_with_what_was_cloned_and_a_curve_that_stopped_stays_where_it_was():
    short = replace(CELL, cloned_success=0.1, success_curve=(0.7,), predicted_success=(0.7,))
    mean, low, high = success_band([CELL, short])
    assert mean == pytest.approx([0.2, 0.6, 0.775, 0.7])
    assert all(bottom <= middle <= top for bottom, middle, top in zip(low, mean, high, strict=True))


def test_agreement_is_that_of_rankings_of_all_policies_that_the_model_ranks():
    """The policy of an iteration is watched after the one before."""
    assert ranking_agreement([CELL]) == -1, "0.9 and 0.6 of policies that have 0.5 and 0.85"
    assert ranking_agreement([replace(CELL, predicted_success=(0.2, 0.5, 0.6))]) == pytest.approx(1)
    assert ranking_agreement([replace(CELL, predicted_success=(None, None, 0.5))]) is None
    assert ranking_agreement([replace(CELL, success_source="simulator")]) is None, (
        "who ends episodes leaves the model nothing to say"
    )
    better = replace(CELL, cloned_success=0.1, success_curve=(0.2, 0.3, 0.0), predicted_success=(0.1, 0.2, 0.3))
    other = replace(CELL, predicted_success=(0.4, 0.5, 0.6))
    assert ranking_agreement([other, better]) == pytest.approx((14 - 0) / 15), "across refinements too; 0.3 twice"
    assert ranking_agreement([other, replace(better, predicted_success=(0.95, 0.96, 0.97))]) < 0
    assert summarize_cells([replace(CELL, predicted_success=(None,) * 3)], 0.8)["ranking_agreement"] is None


def test_what_a_budget_of_episodes_buys_is_the_last_iteration_within_it():
    assert [CELL.success_after(n) for n in (59, 60, 150, 1000)] == [0.3, 0.5, 0.85, 0.7]


def test_hovering_alarms_and_time_are_told():
    told = summarize_cells(
        [
            CELL,
            replace(
                CELL, hover_rates=(None,) * 3, alarm_iterations=(4, 5), seconds_by_phase={"physics": 6.0, "learn": 14.0}
            ),
        ],
        0.8,
    )
    assert (told["hover_rate"], told["seeds_with_alarm"], told["seconds_per_seed"]) == (0.25, 1, 15)
    assert phase_time_shares([CELL, CELL]) == {"physics": pytest.approx(0.4), "learn": pytest.approx(0.6)}


def test_the_difference_at_the_end_is_of_pairs_and_has_an_interval():
    mine = [replace(CELL, seed=seed, refined_success=0.9 + 0.01 * seed) for seed in range(4)]
    theirs = [replace(CELL, seed=seed, refined_success=0.8) for seed in range(4)]
    apart, low, high = success_difference(mine, theirs)
    assert apart == pytest.approx(0.115) and low < 0.115 < high and high - low < 0.1
    assert success_difference(mine, mine) == (0, 0, 0)


def test_cells_of_a_seed_that_began_from_different_policies_are_no_pair():
    check_same_policy(CELL, "sparse", CELL.policy_digest)
    with pytest.raises(UserError, match="lift, seed 0: shaped and sparse started from different policies"):
        check_same_policy(CELL, "sparse", "other")


def test_a_cell_is_what_json_made_of_it():
    assert CellResult.from_json(json.loads(json.dumps(asdict(CELL)))) == CELL


def test_every_task_has_its_rows_and_who_is_compared_with_whom_its_own():
    some = [*cells("shaped", 1, 2), *(replace(c, success_source="simulator") for c in cells("dense", 3, 100))]
    told = Comparison(
        rules=("shaped", "dense"),
        target_success=0.8,
        num_seeds=2,
        cells=[*some, *(replace(c, task="open") for c in some)],
    )
    text = "\n".join(markdown_tables(told.tables()))
    assert "| lift | `shaped` | model | 0.30 |" in text and "| open | `dense` | simulator | 0.30 |" in text
    assert "| all | `shaped` | model | 0.30 |" in text, "the mean over tasks and seeds"
    assert "| lift | `shaped` | +0.600 |" in text, "refined less cloned"
    assert [found["success"] for found in told.as_dict()["gains"]] == [pytest.approx(0.6)] * 6
    assert [(pair["tasks"], pair["other"]) for pair in told.as_dict()["pairs"]] == [
        ("lift", "dense"), ("open", "dense"), ("all", "dense"),
    ]  # fmt: skip
    curve, *_ = told.build_report().charts
    low, high = curve.bands["shaped"]
    assert low[-1] <= curve.series["shaped"][-1] <= high[-1]
    assert told.build_report().tables == told.tables(), "the run's own page tells what the Markdown tells"
    assert "| all | `shaped` / `dense` |" in text and "| `dense` | 40% | 60% |" in text


def test_cells_are_found_again():
    some = [*cells("shaped", 1, 2), *cells("sparse", 3)]
    assert [cell.cumulative_episodes[0] for cell in filter_by_rule(some, "sparse")] == [3]
    assert group_by_task([*some, replace(CELL, task="open")]).keys() == {"lift", "open"}
