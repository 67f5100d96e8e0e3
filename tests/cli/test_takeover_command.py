"""Take-over and exported starts by the command line."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from browsers import open_printed_page, wait_for_step
from child_process import start_process
from playwright.sync_api import Page, expect
from tiny_runs import REFINE, metrics

from embodied_rm.cli.compose import compose_typed
from embodied_rm.cli.main import main
from embodied_rm.experiments.compare_rules import CompareConfig, make_recipe
from embodied_rm.rl.envs.takeover import TakeoverConfig
from embodied_rm.tabletop.exported_starts import read_starts


def test_the_expert_helps_and_starts_go_to_another_world(
    demos: Path, cloned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reward = ["reward.rule=dense", "reward.success_source=simulator", "env.views=[]"]
    learner = ["algorithm=rlpd", f"recorded_data={demos}", "rlpd.batch_size=16", "rlpd.pretraining_updates=2"]
    common = [*REFINE, f"policy={cloned}", *reward, *learner, "rollout_steps=60", "rlpd.updates_per_step=0.1"]
    assert main([*common, "takeover.stall_steps=2", "start_pool_size=5", f"out={tmp_path / 'first'}"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "first/progress.jsonl").read_text().splitlines()]
    helped = sum(row["helped_episodes"] for row in rows)
    assert helped > 0 and metrics(tmp_path / "first")["tasks"]["lift_cube"]["training_episodes"] >= helped
    starts = read_starts(tmp_path / "first", "lift_cube")
    assert len(starts.seeds) == 5 and starts.failure_rates.max() > 0.5
    world = ["env.robot=six_axis", "env.randomize.latency=1", f"starts={tmp_path / 'first'}"]
    assert main([*common, *world, f"out={tmp_path / 'second'}"]) == 0
    second = read_starts(tmp_path / "second", "lift_cube")
    assert second.seeds.tolist() == starts.seeds.tolist()
    assert second.failure_rates.tolist() != starts.failure_rates.tolist()
    capsys.readouterr()
    for words, message in (
        ([*common, "starts=/nowhere"], "starts=/nowhere does not exist"),
        ([*common, *world, "start_pool_size=5"], "starts and start_pool_size=5 both set the pool"),
        ([*common, f"starts={cloned}"], "refine with start_pool_size= writes it"),
        ([*REFINE, f"policy={cloned}", *reward, "takeover.stall_steps=2"], "needs algorithm=rlpd"),
        ([*common, "takeover.min_gain=0"], "takeover.min_gain must be > 0"),
    ):
        assert main([*words, f"out={tmp_path / 'refused'}"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_only_a_take_over_decides_a_cell_of_a_comparison() -> None:
    config = compose_typed("compare", ["refine.takeover.min_gain=0.2"], CompareConfig)
    plain = compose_typed("compare", [], CompareConfig)
    cells = [make_recipe(each, 0, "lift_cube", "shaped") for each in (config, plain)]
    helped = replace(
        cells[0],
        refine=replace(
            cells[0].refine, algorithm="rlpd", recorded_data=Path("x"), takeover=TakeoverConfig(stall_steps=4)
        ),
    )
    assert cells[0].cache_settings("m") == cells[1].cache_settings("m")
    assert helped.cache_settings("m")[1]["refine"]["takeover"]["stall_steps"] == 4


def test_a_person_takes_over_in_a_refinement(page: Page, demos: Path, cloned: Path, tmp_path: Path) -> None:
    reward = ["reward.rule=dense", "reward.success_source=simulator", "env.views=[front]", "env.num_envs=1"]
    learner = ["algorithm=rlpd", f"recorded_data={demos}", "rlpd.batch_size=16", "rlpd.pretraining_updates=2"]
    takeover = ["takeover.helper=person", "takeover.stall_steps=30"]
    command = [sys.executable, "-m", "embodied_rm", *REFINE, f"policy={cloned}", *reward, *learner, *takeover]
    out = [f"out={tmp_path}/run", "rollout_steps=30", "rlpd.updates_per_step=0.1"]
    with start_process([*command, *out]) as process:
        open_printed_page(page, process)
        page.locator('body[data-step="take-over 1/0"]').wait_for(timeout=60_000)
        expect(page.get_by_role("alert")).to_contain_text("Your first move takes over")
        page.keyboard.down("KeyW")
        wait_for_step(page, 5)
        page.keyboard.up("KeyW")
        expect(page.get_by_role("alert")).to_contain_text("The policy acts", timeout=60_000)
        page.goto("about:blank")
        process.communicate(timeout=120)  # the only episode, and with it the refinement, ends
        assert process.returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "run/progress.jsonl").read_text().splitlines()]
    assert sum(row["helped_episodes"] for row in rows) == 1


def test_who_takes_over_needs_one_environment_and_a_camera(
    demos: Path, cloned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = ["algorithm=rlpd", f"recorded_data={demos}", "takeover.helper=person", "takeover.stall_steps=2"]
    command = [*REFINE, f"policy={cloned}", "reward.rule=dense", "reward.success_source=simulator", *learner]
    for words, message in [
        (["env.num_envs=4"], "takeover.helper=person acts in one environment: set env.num_envs=1, not 4"),
        (["env.num_envs=1", "env.views=[]"], "a person needs a camera: set env.views=[front]"),
        (["takeover.helper=expert", "takeover.port=8080"], "takeover.port=8080 needs takeover.helper=person"),
    ]:
        assert main([*command, *words, f"out={tmp_path}/run"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
