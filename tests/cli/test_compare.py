"""`embodied-rm compare`: paired cells, each done once, alone or in company."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.cli.compose import compose_typed
from embodied_rm.cli.main import main
from embodied_rm.experiments.compare_rules import CompareConfig, make_recipe
from embodied_rm.rl.refine_checkpoint import CHECKPOINT_DIR
from embodied_sim.registry import task_names

SMALL = [
    "tasks=[press_button]", "num_seeds=2", "target_success=0.05", "collect.num_successes=3",
    "task_presets.press_button.num_demonstrations=2",
    "task_presets.press_button.iterations=3", "task_presets.press_button.rollout_steps=6", "clone.steps=60", "clone.eval_episodes=4",
    "refine.env.num_envs=4", "clone.env.num_envs=4", "refine.final_eval_episodes=4", "refine.eval_episodes=4",
]  # fmt: skip


def compare(folder: Path, *words: str) -> dict:
    assert main(["compare", *SMALL, f"out={folder}", *words]) == 0
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("compare") / "both"
    return folder, compare(folder, "rules=[shaped,sparse]", f"results_page={folder.parent / 'page.md'}")


def test_cells_are_paired_and_told(both):
    folder, told = both
    cells = {(cell["seed"], cell["rule"]): cell for cell in told["cells"]}
    assert cells.keys() == {(seed, rule) for seed in range(2) for rule in ("shaped", "sparse")}
    for seed in range(2):
        recorded = json.loads((folder / f"press_button/{seed}/demonstrations/config.json").read_text())
        assert recorded["config"]["seed"] == seed, "seeds share no demonstrations"
        assert cells[seed, "shaped"]["cloned_success"] == cells[seed, "sparse"]["cloned_success"]
        assert len(cells[seed, "shaped"]["success_curve"]) == 3
    assert [(pair["tasks"], pair["rule"], pair["other"]) for pair in told["pairs"]] == [
        ("press_button", "shaped", "sparse")
    ]
    assert set(told["phase_time_shares"]["shaped"]) == {"physics", "render", "score", "act", "learn", "evaluate"}
    assert sum(told["phase_time_shares"]["shaped"].values()) == pytest.approx(1)
    page = (folder.parent / "page.md").read_text()
    assert "| press_button | `sparse` | model |" in page and "| press_button | 2 | 6 | 3 |" in page
    assert (folder.parent / "page_rules.png").stat().st_size > 5000
    assert (folder / "report.html").exists()


def test_a_cell_does_not_know_of_the_others(both, tmp_path):
    alone = compare(tmp_path / "alone", "rules=[sparse,raw]", "num_seeds=1")
    assert alone["pairs"][0]["p"] is alone["pairs"][0]["low"] is None, "one pair says nothing"
    told = [cell for cell in both[1]["cells"] if (cell["seed"], cell["rule"]) == (0, "sparse")]
    assert [{**cell, "seconds_by_phase": {}} for cell in alone["cells"][:1]] == [{**cell, "seconds_by_phase": {}} for cell in told]


def test_killed_in_the_midst_of_a_cell_it_ends_as_if_nothing_had_happened(both, tmp_path):
    folder, words = tmp_path / "killed", ["rules=[sparse,raw]", "num_seeds=1", f"out={tmp_path / 'killed'}"]
    cell = folder / "press_button/0/sparse"
    child = subprocess.Popen(
        [sys.executable, "-m", "embodied_rm", "compare", *SMALL, *words], stdout=subprocess.DEVNULL
    )
    while not (cell / CHECKPOINT_DIR / MANIFEST_NAME).exists():
        assert child.poll() is None, "it ended before it stored anything"
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert not (cell / "metrics.json").exists()
    again = compare(folder, *words[:2], "resume=true")
    told = [one for one in both[1]["cells"] if (one["seed"], one["rule"]) == (0, "sparse")]
    assert [{**one, "seconds_by_phase": {}} for one in again["cells"][:1]] == [{**one, "seconds_by_phase": {}} for one in told]


def test_who_says_that_a_success_is_one_is_told_of_every_rule(tmp_path):
    """The hand-written reward is paid from the simulator's state, and its success with it."""
    told = compare(tmp_path / "run", "rules=[shaped,dense]", "num_seeds=1", f"results_page={tmp_path / 'page.md'}")
    assert {cell["rule"]: cell["success_source"] for cell in told["cells"]} == {"shaped": "model", "dense": "simulator"}
    assert "| press_button | `dense` | simulator |" in (tmp_path / "page.md").read_text()


def test_every_task_can_be_compared_and_the_command_line_says_how():
    for task in task_names():
        config = compose_typed("compare", [f"tasks=[{task}]", "task_presets.default.num_demonstrations=7"], CompareConfig)
        sizes = make_recipe(config, 0, task, "shaped")
        assert sizes.clone.num_demonstrations == (7 if task not in config.task_presets else config.task_presets[task].num_demonstrations)
        assert sizes.clone.checkpoint == sizes.refine.checkpoint is None
    chosen = make_recipe(compose_typed("compare", ["checkpoint=mine"], CompareConfig), 0, "lift_cube", "shaped")
    assert chosen.clone.checkpoint == chosen.refine.checkpoint == Path("mine")


def test_a_cell_that_no_potential_guides_does_not_know_of_guidance():
    def decided(rule, *words):
        return make_recipe(
            compose_typed("compare", ["tasks=[lift_cube]", *words], CompareConfig), 0, "lift_cube", rule
        ).cache_settings("m")

    assert decided("raw", "refine.heuristic_coef=0.1", "refine.heuristic_off_at=0.3") == decided("raw")
    assert decided("shaped", "refine.heuristic_coef=0.1") != decided("shaped") != decided("shaped", "refine.heuristic_off_at=0.3")


def test_a_policy_that_sees_images_is_cloned_from_the_views_that_it_is_refined_with():
    seeing = compose_typed("compare", ["clone.obs_mode=proprio+embeddings", "clone.env.views=[front]"], CompareConfig)
    both = make_recipe(seeing, 0, "lift_cube", "shaped")
    eyes = seeing.refine.env.views
    assert both.collect.env.views == both.clone.env.views == both.refine.env.views == eyes != ("front",)


def test_what_is_finished_is_not_done_again(both):
    folder, told = both
    (folder / "metrics.json").unlink()
    before = (folder / "press_button/0/sparse/metrics.json").stat().st_mtime_ns
    again = compare(folder, "rules=[shaped,sparse]", f"results_page={folder.parent / 'page.md'}", "resume=true")
    assert again == told and (folder / "press_button/0/sparse/metrics.json").stat().st_mtime_ns == before


def test_what_another_machine_has_measured_is_read_from_beside_the_page(both, tmp_path):
    folder, told = both
    shutil.copy(folder.parent / "page_rules.jsonl", tmp_path / "page_rules.jsonl")
    page = f"results_page={tmp_path / 'page.md'}"
    assert compare(tmp_path / "elsewhere", "rules=[shaped,sparse]", page) == told
    assert not (tmp_path / "elsewhere" / "press_button").exists(), "nothing is recorded, cloned or refined again"
    more = compare(tmp_path / "other", "rules=[sparse]", "num_seeds=1", "refine.eval_episodes=5", page)
    assert more["cells"][0]["success_curve"] != told["cells"][1]["success_curve"], "other settings are another cell"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rules=[shape]"], "Did you mean 'shaped'"),
        (["rules=[raw,raw]"], "each once"),
        (["tasks=[lift]"], "unknown task 'lift'"),
        (["refine.eval_episodes=0"], "refine.eval_episodes must be >= 1"),
        (["collect.num_successes=3"], "lift_cube: 4 demonstrations needed, and only collect.num_successes=3"),
        (["refine.env.views=[fron]"], "Did you mean 'front'"),
        (["rules=[sparse,raw]", "refine.reward.success_source=simulator", "refine.env.views=[top]"], "unknown view of the"),
        (["rules=[shaped,sigmoid_reference]", "task_presets.open_drawer.rollout_steps=59"], "rollout_steps=59: rule=sigmoid"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words, said, tmp_path, capsys):
    assert main(["compare", *words, f"out={tmp_path / 'run'}"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
