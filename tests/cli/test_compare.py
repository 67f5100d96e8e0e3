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
    "tasks=[press_button]", "seeds=2", "level=0.05", "collect.successes=3", "sizes.press_button.demonstrations=2",
    "sizes.press_button.iterations=3", "sizes.press_button.rollout_steps=6", "clone.steps=60", "clone.episodes=4",
    "refine.env.num_envs=4", "clone.env.num_envs=4", "refine.episodes=4", "refine.watched=4",
]  # fmt: skip


def compare(folder: Path, *words: str) -> dict:
    assert main(["compare", *SMALL, f"out={folder}", *words]) == 0
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("compare") / "both"
    return folder, compare(folder, "rules=[shaped,sparse]", f"page={folder.parent / 'page.md'}")


def test_cells_are_paired_and_told(both):
    folder, told = both
    cells = {(cell["seed"], cell["rule"]): cell for cell in told["cells"]}
    assert cells.keys() == {(seed, rule) for seed in range(2) for rule in ("shaped", "sparse")}
    for seed in range(2):
        recorded = json.loads((folder / f"press_button/{seed}/demonstrations/config.json").read_text())
        assert recorded["config"]["seed"] == seed, "seeds share no demonstrations"
        assert cells[seed, "shaped"]["cloned"] == cells[seed, "sparse"]["cloned"]
        assert len(cells[seed, "shaped"]["curve"]) == 3
    assert [(pair["tasks"], pair["rule"], pair["other"]) for pair in told["pairs"]] == [
        ("press_button", "shaped", "sparse")
    ]
    assert set(told["stages"]["shaped"]) == {"physics", "render", "score", "act", "learn", "watch"}
    assert sum(told["stages"]["shaped"].values()) == pytest.approx(1)
    page = (folder.parent / "page.md").read_text()
    assert "| press_button | `sparse` | model |" in page and "| press_button | 2 | 6 | 3 |" in page
    assert (folder.parent / "page_rules.png").stat().st_size > 5000
    assert (folder / "report.html").exists()


def test_a_cell_does_not_know_of_the_others(both, tmp_path):
    alone = compare(tmp_path / "alone", "rules=[sparse,raw]", "seeds=1")
    assert alone["pairs"][0]["p"] is alone["pairs"][0]["low"] is None, "one pair says nothing"
    told = [cell for cell in both[1]["cells"] if (cell["seed"], cell["rule"]) == (0, "sparse")]
    assert [{**cell, "seconds": 0} for cell in alone["cells"][:1]] == [{**cell, "seconds": 0} for cell in told]


def test_killed_in_the_midst_of_a_cell_it_ends_as_if_nothing_had_happened(both, tmp_path):
    folder, words = tmp_path / "killed", ["rules=[sparse,raw]", "seeds=1", f"out={tmp_path / 'killed'}"]
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
    assert [{**one, "seconds": 0} for one in again["cells"][:1]] == [{**one, "seconds": 0} for one in told]


def test_who_says_that_a_success_is_one_is_told_of_every_rule(tmp_path):
    """The hand-written reward is paid from the simulator's state, and its success with it."""
    told = compare(tmp_path / "run", "rules=[shaped,dense]", "seeds=1", f"page={tmp_path / 'page.md'}")
    assert {cell["rule"]: cell["success"] for cell in told["cells"]} == {"shaped": "model", "dense": "simulator"}
    assert "| press_button | `dense` | simulator |" in (tmp_path / "page.md").read_text()


def test_every_task_can_be_compared_and_the_command_line_says_how():
    for task in task_names():
        config = compose_typed("compare", [f"tasks=[{task}]", "sizes.other.demonstrations=7"], CompareConfig)
        sizes = make_recipe(config, 0, task, "shaped")
        assert sizes.clone.num_demonstrations == (7 if task not in config.sizes else config.sizes[task].demonstrations)
        assert sizes.clone.checkpoint == sizes.refine.checkpoint is None
    chosen = make_recipe(compose_typed("compare", ["checkpoint=mine"], CompareConfig), 0, "lift_cube", "shaped")
    assert chosen.clone.checkpoint == chosen.refine.checkpoint == Path("mine")


def test_a_cell_that_no_potential_guides_does_not_know_of_guidance():
    def decided(rule, *words):
        return make_recipe(
            compose_typed("compare", ["tasks=[lift_cube]", *words], CompareConfig), 0, "lift_cube", rule
        ).cache_settings("m")

    assert decided("raw", "refine.guidance=0.1", "refine.guided_until=0.3") == decided("raw")
    assert decided("shaped", "refine.guidance=0.1") != decided("shaped") != decided("shaped", "refine.guided_until=0.3")


def test_a_policy_that_sees_images_is_cloned_from_the_views_that_it_is_refined_with():
    seeing = compose_typed("compare", ["clone.sees=proprio+views", "clone.env.views=[front]"], CompareConfig)
    both = make_recipe(seeing, 0, "lift_cube", "shaped")
    eyes = seeing.refine.env.views
    assert both.collect.env.views == both.clone.env.views == both.refine.env.views == eyes != ("front",)


def test_what_is_finished_is_not_done_again(both):
    folder, told = both
    (folder / "metrics.json").unlink()
    before = (folder / "press_button/0/sparse/metrics.json").stat().st_mtime_ns
    again = compare(folder, "rules=[shaped,sparse]", f"page={folder.parent / 'page.md'}", "resume=true")
    assert again == told and (folder / "press_button/0/sparse/metrics.json").stat().st_mtime_ns == before


def test_what_another_machine_has_measured_is_read_from_beside_the_page(both, tmp_path):
    folder, told = both
    shutil.copy(folder.parent / "page_rules.jsonl", tmp_path / "page_rules.jsonl")
    page = f"page={tmp_path / 'page.md'}"
    assert compare(tmp_path / "elsewhere", "rules=[shaped,sparse]", page) == told
    assert not (tmp_path / "elsewhere" / "press_button").exists(), "nothing is recorded, cloned or refined again"
    more = compare(tmp_path / "other", "rules=[sparse]", "seeds=1", "refine.watched=5", page)
    assert more["cells"][0]["curve"] != told["cells"][1]["curve"], "other settings are another cell"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rules=[shape]"], "Did you mean 'shaped'"),
        (["rules=[raw,raw]"], "each once"),
        (["tasks=[lift]"], "unknown task 'lift'"),
        (["refine.watched=0"], "refine.watched must be >= 1"),
        (["collect.successes=3"], "lift_cube: 4 demonstrations asked for, and collect.successes=3"),
        (["refine.env.views=[fron]"], "Did you mean 'front'"),
        (["rules=[sparse,raw]", "refine.reward.success=simulator", "refine.env.views=[top]"], "unknown view of the"),
        (["rules=[shaped,sigmoid_reference]", "sizes.open_drawer.rollout_steps=59"], "rollout_steps=59: rule=sigmoid"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words, said, tmp_path, capsys):
    assert main(["compare", *words, f"out={tmp_path / 'run'}"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
