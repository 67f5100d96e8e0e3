"""`embodied-rm bench online`: every method refines once, and the page counts episodes and drops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from embodied_rm.cli.main import main
from embodied_rm.errors import UserError
from embodied_rm.experiments.comparison import CellResult
from embodied_rm.experiments.mixed_recordings import MethodCell
from embodied_rm.experiments.online_benchmark import METHODS, BenchOnlineConfig, refine_config
from embodied_rm.experiments.online_page import largest_drop, markdown_section, summary

SMALL = ["num_seeds=1", "num_demonstrations=2", "num_rollouts=2", "num_envs=8", "iterations=3", "eval_episodes=2"]


def cell(method: str, curve: tuple[float, ...], start: float = 0.5, task: str = "lift_cube") -> CellResult:
    return CellResult(
        task=task,
        seed=1,
        rule=method,
        success_source="simulator",
        policy_digest="",
        cloned_success=start,
        refined_success=curve[-1],
        success_curve=curve,
        predicted_success=(None,) * len(curve),
        hover_rates=(None,) * len(curve),
        alarm_iterations=(),
        cumulative_episodes=tuple(16 * (i + 1) for i in range(len(curve))),
        seconds_by_phase={},
    )


@pytest.mark.usefixtures("few_steps")
def test_cells_run_once_and_fill_the_page(tmp_path: Path) -> None:
    page, methods = tmp_path / "online.md", ["clone", "hnpg"]
    args = ["bench", "online", "tasks=[press_button]", f"methods=[{','.join(methods)}]", *SMALL, f"results_page={page}"]
    assert main([*args, f"out={tmp_path / 'run'}"]) == 0
    cells = json.loads((tmp_path / "run" / "metrics.json").read_text())["bench"]["cells"]
    assert [entry["rule"] for entry in cells] == methods
    assert all(f"`{method}`" in page.read_text() for method in methods)
    assert main([*args, f"out={tmp_path / 'again'}"]) == 0
    assert not (tmp_path / "again" / "press_button").exists(), "all results are read from the results cache"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_refined_on_the_success_of_the_simulator_alone(method: str, tmp_path: Path) -> None:
    cell, config = MethodCell(seed=1, task="press_button", method=method), BenchOnlineConfig()
    refine = refine_config(cell, config, tmp_path / "data", tmp_path / "policy")
    assert (refine.reward.rule, refine.reward.success_source) == ("sparse", "simulator")
    assert refine.algorithm == (method if method in {"hnpg", "rlpd"} else "ppo")
    assert (refine.recorded_data is not None) == (refine.algorithm != "ppo")
    assert refine.iterations == (config.rlpd_iterations if method == "rlpd" else config.iterations)


def test_drops_are_counted_from_the_start() -> None:
    assert largest_drop(cell("clone", (0.6, 0.7))) == 0
    assert largest_drop(cell("clone", (0.6, 0.3, 0.9))) == pytest.approx(0.3)


def test_page_has_the_ratio_of_episodes_to_the_target(tmp_path: Path) -> None:
    cells = [cell("clone", (0.5, 0.6, 0.7, 0.9)), cell("dpo", (0.7, 0.85), start=0.6)]
    settings = {**vars(BenchOnlineConfig()), "methods": ("clone", "dpo")}
    text = markdown_section(cells, settings, tmp_path / "online.md")
    assert "| lift_cube | `dpo` | 0.600 | 0.850 | 32 | 0.000 | 0.000 | 0.50 | - |" in text
    assert "| lift_cube | `clone` | 0.500 | 0.900 | 64 | 0.000 | 0.000 | - | - |" in text
    assert summary(cells[:1], 0.95)["episodes to 0.95"] == "not reached"


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(UserError, match=r"methods must be among clone, .*got sac"):
        BenchOnlineConfig(methods=("sac",))
