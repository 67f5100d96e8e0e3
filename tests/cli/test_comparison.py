"""Statistics and tables of the comparison of reward rules."""

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
    task="lift",
    seed=0,
    rule="shaped",
    success_source="model",
    policy_digest="p",
    cloned_success=0.3,
    refined_success=0.9,
    success_curve=(0.5, 0.85, 0.7),
    predicted_success=(None, 0.9, 0.6),
    hover_rates=(None, 0.5, 0.25),
    alarm_iterations=(),
    cumulative_episodes=(60, 130, 200),
    seconds_by_phase={"physics": 4.0, "learn": 6.0},
)


def cells(rule: str, *num_episodes: int) -> list[CellResult]:
    """Cells that reach 0.8 after the given episodes of 100; 100: never."""
    return [
        replace(
            CELL,
            seed=seed,
            rule=rule,
            success_curve=(0.8, 0.9) if n < 100 else (0.1, 0.2),
            predicted_success=(0.5, 0.5),
            cumulative_episodes=(n, 100),
        )
        for seed, n in enumerate(num_episodes)
    ]


def test_rollouts_count_up_to_the_iteration_that_reached_the_target():
    assert (
        CELL.rollouts_to_success(0.8) == 130
        and CELL.rollouts_to_success(0.5) == 60
        and CELL.rollouts_to_success(0.95) is None
    )


def test_the_median_exists_if_more_than_half_reached_the_target():
    assert summarize_cells(cells("shaped", 10, 20, 100), 0.8)["rollouts_to_target"] == 20
    summary = summarize_cells(cells("shaped", 10, 100, 100), 0.8)
    assert summary["rollouts_to_target"] is None and summary["num_reached"] == 1 and summary["seeds"] == 3
    assert summarize_cells([CELL, replace(CELL, refined_success=0.5)], 0.8)["worst_seed"] == 0.5


def test_runs_that_never_reach_the_target_are_censored():
    fast, slow = cells("shaped", 10)[0], replace(cells("shaped", 40)[0], cumulative_episodes=(40, 5000))
    short, long = (replace(cells("sparse", 100)[0], cumulative_episodes=(last - 1, last)) for last in (30, 400))
    assert rollout_ratio([fast], [long], 0.8)[0] == pytest.approx(10 / 400)
    assert rollout_ratio([slow], [long], 0.8)[0] == pytest.approx(40 / 400), (
        "the length of the other run does not matter after it reached the target"
    )
    assert rollout_ratio([slow], [short], 0.8)[0] == 1 == rollout_ratio([short], [slow], 0.8)[0]
    assert rollout_ratio([long], [short], 0.8)[0] == 1, "neither reached the target"


def test_the_rollout_ratio_is_over_pairs():
    own_cells, other_cells = cells("shaped", 10, 20, 40, 40, 10), cells("sparse", 20, 40, 80, 100, 20)
    value, p = rollout_ratio(own_cells, other_cells, 0.8)
    assert value == pytest.approx(math.exp((4 * math.log(0.5) + math.log(0.4)) / 5)) and p == 1 / 32
    assert rollout_ratio(own_cells, list(reversed(other_cells)), 0.8) == (value, p)
    assert rollout_ratio(own_cells, other_cells[:2], 0.8)[0] == pytest.approx(0.5)


def test_bands_start_with_the_cloned_policy_and_extend_stopped_curves():
    short = replace(CELL, cloned_success=0.1, success_curve=(0.7,), predicted_success=(0.7,))
    mean, low, high = success_band([CELL, short])
    assert mean == pytest.approx([0.2, 0.6, 0.775, 0.7])
    assert all(bottom <= middle <= top for bottom, middle, top in zip(low, mean, high, strict=True))


def test_ranking_agreement_covers_all_policies_that_the_model_ranks():
    """The policy of an iteration is evaluated after the previous one."""
    assert ranking_agreement([CELL]) == -1, "predictions 0.9 and 0.6 for true rates 0.5 and 0.85"
    assert ranking_agreement([replace(CELL, predicted_success=(0.2, 0.5, 0.6))]) == pytest.approx(1)
    assert ranking_agreement([replace(CELL, predicted_success=(None, None, 0.5))]) is None
    assert ranking_agreement([replace(CELL, success_source="simulator")]) is None, "the simulator ends the episodes"
    better = replace(CELL, cloned_success=0.1, success_curve=(0.2, 0.3, 0.0), predicted_success=(0.1, 0.2, 0.3))
    other = replace(CELL, predicted_success=(0.4, 0.5, 0.6))
    assert ranking_agreement([other, better]) == pytest.approx((14 - 0) / 15), "across refinements; one tie at 0.3"
    assert ranking_agreement([other, replace(better, predicted_success=(0.95, 0.96, 0.97))]) < 0
    assert summarize_cells([replace(CELL, predicted_success=(None,) * 3)], 0.8)["ranking_agreement"] is None


def test_success_after_a_budget_is_that_of_the_last_iteration_within_it():
    assert [CELL.success_after(n) for n in (59, 60, 150, 1000)] == [0.3, 0.5, 0.85, 0.7]


def test_hovering_alarms_and_time_are_summarized():
    summary = summarize_cells(
        [
            CELL,
            replace(
                CELL, hover_rates=(None,) * 3, alarm_iterations=(4, 5), seconds_by_phase={"physics": 6.0, "learn": 14.0}
            ),
        ],
        0.8,
    )
    assert (summary["hover_rate"], summary["seeds_with_alarm"], summary["seconds_per_seed"]) == (0.25, 1, 15)
    assert phase_time_shares([CELL, CELL]) == {"physics": pytest.approx(0.4), "learn": pytest.approx(0.6)}


def test_the_success_difference_is_paired_and_has_an_interval():
    own_cells = [replace(CELL, seed=seed, refined_success=0.9 + 0.01 * seed) for seed in range(4)]
    other_cells = [replace(CELL, seed=seed, refined_success=0.8) for seed in range(4)]
    difference, low, high = success_difference(own_cells, other_cells)
    assert difference == pytest.approx(0.115) and low < 0.115 < high and high - low < 0.1
    assert success_difference(own_cells, own_cells) == (0, 0, 0)


def test_cells_from_different_policies_cannot_be_paired():
    check_same_policy(CELL, "sparse", CELL.policy_digest)
    with pytest.raises(UserError, match="lift, seed 0: shaped and sparse started from different policies"):
        check_same_policy(CELL, "sparse", "other")


def test_cells_round_trip_through_json():
    assert CellResult.from_json(json.loads(json.dumps(asdict(CELL)))) == CELL


def test_tables_have_rows_per_task_and_rule():
    cells_of_rules = [*cells("shaped", 1, 2), *(replace(c, success_source="simulator") for c in cells("dense", 3, 100))]
    summary = Comparison(
        rules=("shaped", "dense"),
        target_success=0.8,
        num_seeds=2,
        cells=[*cells_of_rules, *(replace(c, task="open") for c in cells_of_rules)],
    )
    text = "\n".join(markdown_tables(summary.tables()))
    assert "| lift | `shaped` | model | 0.30 |" in text and "| open | `dense` | simulator | 0.30 |" in text
    assert "| all | `shaped` | model | 0.30 |" in text, "the mean over tasks and seeds"
    assert "| lift | `shaped` | +0.600 |" in text, "refined minus cloned"
    assert [found["success"] for found in summary.as_dict()["gains"]] == [pytest.approx(0.6)] * 6
    assert [(pair["tasks"], pair["other"]) for pair in summary.as_dict()["pairs"]] == [
        ("lift", "dense"), ("open", "dense"), ("all", "dense"),
    ]  # fmt: skip
    curve, *_ = summary.build_report().charts
    low, high = curve.bands["shaped"]
    assert low[-1] <= curve.series["shaped"][-1] <= high[-1]
    assert summary.build_report().tables == summary.tables(), "report and Markdown have the same tables"
    assert "| all | `shaped` / `dense` |" in text and "| `dense` | 40% | 60% |" in text


def test_cells_are_filtered_and_grouped():
    cells_of_rules = [*cells("shaped", 1, 2), *cells("sparse", 3)]
    assert [cell.cumulative_episodes[0] for cell in filter_by_rule(cells_of_rules, "sparse")] == [3]
    assert group_by_task([*cells_of_rules, replace(CELL, task="open")]).keys() == {"lift", "open"}
