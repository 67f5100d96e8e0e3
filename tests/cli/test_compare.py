"""`embodied-rm compare`: paired, independent cells, each measured once."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from forked_program import ForkedProgram

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.cli.compose import compose_typed
from embodied_rm.cli.main import main
from embodied_rm.experiments.compare_rules import CompareConfig, make_recipe
from embodied_rm.experiments.results_cache import open_results_cache
from embodied_rm.rl.refine_checkpoint import CHECKPOINT_DIR
from embodied_rm.tabletop.refine_command import reward_model_digest
from embodied_sim.registry import task_names

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "tasks=[press_button]", "num_seeds=2", "target_success=0.05", "collect.num_successes=3",
    "task_presets.press_button.num_demonstrations=2",
    "task_presets.press_button.iterations=2", "task_presets.press_button.rollout_steps=6",
    "refine.critic_warmup_iterations=1", "clone.steps=60", "clone.eval_episodes=4",
    "refine.env.num_envs=4", "clone.env.num_envs=4", "refine.final_eval_episodes=4", "refine.eval_episodes=4",
]  # fmt: skip


def compare(folder: Path, *args: str) -> dict:
    assert main(["compare", *SMALL, f"out={folder}", *args]) == 0
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture(scope="module")
def two_rules(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("compare") / "both"
    return folder, compare(folder, "rules=[shaped,sparse]", f"results_page={folder.parent / 'page.md'}")


def test_cells_are_paired_and_reported(two_rules):
    folder, metrics = two_rules
    cells = {(cell["seed"], cell["rule"]): cell for cell in metrics["cells"]}
    assert cells.keys() == {(seed, rule) for seed in range(2) for rule in ("shaped", "sparse")}
    for seed in range(2):
        recorded = json.loads((folder / f"press_button/{seed}/demonstrations/config.json").read_text())
        assert recorded["config"]["seed"] == seed, "seeds have separate demonstrations"
        assert cells[seed, "shaped"]["cloned_success"] == cells[seed, "sparse"]["cloned_success"]
        assert len(cells[seed, "shaped"]["success_curve"]) == 2
    assert [(pair["tasks"], pair["rule"], pair["other"]) for pair in metrics["pairs"]] == [
        ("press_button", "shaped", "sparse")
    ]
    assert set(metrics["phase_time_shares"]["shaped"]) == {"physics", "render", "score", "act", "learn", "evaluate"}
    assert sum(metrics["phase_time_shares"]["shaped"].values()) == pytest.approx(1)
    page = (folder.parent / "page.md").read_text()
    assert "| press_button | `sparse` | model |" in page and "| press_button | 2 | 6 | 2 |" in page
    assert (folder.parent / "page_rules.png").stat().st_size > 5000
    assert (folder / "report.html").exists()


def test_a_cell_is_independent_of_other_cells(two_rules, tmp_path):
    alone_metrics = compare(tmp_path / "alone", "rules=[sparse,raw]", "num_seeds=1")
    assert alone_metrics["pairs"][0]["p"] is alone_metrics["pairs"][0]["low"] is None, (
        "a single pair has no p-value and interval"
    )
    metrics = [cell for cell in two_rules[1]["cells"] if (cell["seed"], cell["rule"]) == (0, "sparse")]
    assert [{**cell, "seconds_by_phase": {}} for cell in alone_metrics["cells"][:1]] == [
        {**cell, "seconds_by_phase": {}} for cell in metrics
    ]


def test_a_killed_cell_resumes_to_the_same_result(two_rules, tmp_path):
    folder, args = tmp_path / "killed", ["rules=[sparse,raw]", "num_seeds=1", f"out={tmp_path / 'killed'}"]
    cell = folder / "press_button/0/sparse"
    program = ForkedProgram(["compare", *SMALL, *args], tmp_path / "printed")
    program.wait_until((cell / CHECKPOINT_DIR / MANIFEST_NAME).exists)
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert not (cell / "metrics.json").exists()
    metrics_again = compare(folder, *args[:2], "resume=true")
    metrics = [
        cell_result
        for cell_result in two_rules[1]["cells"]
        if (cell_result["seed"], cell_result["rule"]) == (0, "sparse")
    ]
    assert [{**cell_result, "seconds_by_phase": {}} for cell_result in metrics_again["cells"][:1]] == [
        {**cell_result, "seconds_by_phase": {}} for cell_result in metrics
    ]


def test_the_success_source_is_reported_per_rule(tmp_path):
    """The dense reward uses the simulator's state, and so its success."""
    metrics = compare(tmp_path / "run", "rules=[shaped,dense]", "num_seeds=1", f"results_page={tmp_path / 'page.md'}")
    assert {cell["rule"]: cell["success_source"] for cell in metrics["cells"]} == {
        "shaped": "model",
        "dense": "simulator",
    }
    assert "| press_button | `dense` | simulator |" in (tmp_path / "page.md").read_text()


def test_every_task_has_a_preset_that_the_command_line_can_override():
    tasks = f"tasks=[{','.join(task_names())}]"
    config = compose_typed("compare", [tasks, "task_presets.default.num_demonstrations=7"], CompareConfig)
    for task in task_names():
        sizes = make_recipe(config, 0, task, "shaped")
        assert sizes.clone.num_demonstrations == (
            7 if task not in config.task_presets else config.task_presets[task].num_demonstrations
        )
        assert sizes.clone.checkpoint == sizes.refine.checkpoint is None
    recipe = make_recipe(compose_typed("compare", ["checkpoint=mine"], CompareConfig), 0, "lift_cube", "shaped")
    assert recipe.clone.checkpoint == recipe.refine.checkpoint == Path("mine")


def test_heuristic_keys_do_not_affect_cells_without_a_potential():
    def decided(rule, *args):
        return make_recipe(
            compose_typed("compare", ["tasks=[lift_cube]", *args], CompareConfig), 0, "lift_cube", rule
        ).cache_settings("m")

    assert decided("raw", "refine.heuristic_coef=0.1", "refine.heuristic_off_at=0.3") == decided("raw")
    assert (
        decided("shaped", "refine.heuristic_coef=0.1")
        != decided("shaped")
        != decided("shaped", "refine.heuristic_off_at=0.3")
    )


def test_settings_of_chosen_frames_affect_only_cells_of_judges_that_choose():
    def judge_settings(*args):
        keys = ["refine.judge.type=question", "refine.judge.question=rubric", *args]
        config = compose_typed("compare", ["tasks=[lift_cube]", *keys], CompareConfig)
        return make_recipe(config, 0, "lift_cube", "shaped").cache_settings("m")[1]["refine"]["judge"]

    even, relevant = judge_settings(), judge_settings("refine.judge.frames=relevant")
    assert relevant == {**even, "frames": "relevant", "frame_encoder": "efficientnet_lite0"}
    assert not {"frames", "frame_encoder"} & even.keys(), "cells that were stored before stay valid"


@pytest.mark.parametrize("key", ["translation_invariant", "mirror_images"])
def test_a_symmetry_decides_a_cell_only_where_it_is_set(key):
    def clone_settings(*args):
        config = compose_typed("compare", ["tasks=[lift_cube]", *args], CompareConfig)
        return make_recipe(config, 0, "lift_cube", "shaped").cache_settings("m")[0]["clone"]

    symmetric = clone_settings(f"clone.{key}=true")
    assert symmetric == {**clone_settings(), key: True}
    assert key not in clone_settings(), "cells that were stored before stay valid"


def test_success_in_each_view_decides_a_cell_only_where_it_is_set():
    def reward_settings(*args):
        config = compose_typed("compare", ["tasks=[lift_cube]", *args], CompareConfig)
        return make_recipe(config, 0, "lift_cube", "shaped").cache_settings("m")[1]["refine"]["reward"]

    agreed = reward_settings("refine.reward.success_in_each_view=true")
    assert agreed == {**reward_settings(), "success_in_each_view": True}
    assert "success_in_each_view" not in reward_settings(), "cells that were stored before stay valid"


def test_a_policy_of_embeddings_is_cloned_from_the_views_of_its_refinement():
    seeing = compose_typed("compare", ["clone.obs_mode=proprio+embeddings", "clone.env.views=[front]"], CompareConfig)
    two_rules = make_recipe(seeing, 0, "lift_cube", "shaped")
    encoder_model = seeing.refine.env.views
    assert (
        two_rules.collect.env.views
        == two_rules.clone.env.views
        == two_rules.refine.env.views
        == encoder_model
        != ("front",)
    )


def test_finished_cells_are_skipped(two_rules):
    folder, metrics = two_rules
    (folder / "metrics.json").unlink()
    modified_ns = (folder / "press_button/0/sparse/metrics.json").stat().st_mtime_ns
    metrics_again = compare(folder, "rules=[shaped,sparse]", f"results_page={folder.parent / 'page.md'}", "resume=true")
    assert (
        metrics_again == metrics and (folder / "press_button/0/sparse/metrics.json").stat().st_mtime_ns == modified_ns
    )


def test_results_of_another_machine_are_read_from_the_results_cache(two_rules, tmp_path):
    folder, metrics = two_rules
    shutil.copy(folder.parent / "page_rules.jsonl", tmp_path / "page_rules.jsonl")
    page = f"results_page={tmp_path / 'page.md'}"
    assert compare(tmp_path / "elsewhere", "rules=[shaped,sparse]", page) == metrics
    assert not (tmp_path / "elsewhere" / "press_button").exists(), "nothing runs again"
    more_metrics = compare(tmp_path / "other", "rules=[sparse]", "num_seeds=1", "refine.eval_episodes=5", page)
    assert more_metrics["cells"][0]["success_curve"] != metrics["cells"][1]["success_curve"], (
        "other settings are another cell"
    )


RLPD = ["refine.algorithm=rlpd", "refine.recorded_data=demonstrations"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["rules=[shape]"], "Did you mean 'shaped'"),
        (["rules=[raw,raw]"], "each once"),
        (["tasks=[lift]"], "unknown task 'lift'"),
        (["refine.eval_episodes=0"], "refine.eval_episodes must be >= 1"),
        (["collect.num_successes=3"], "lift_cube: 4 demonstrations needed, and only collect.num_successes=3"),
        (["refine.env.views=[fron]"], "Did you mean 'front'"),
        (
            ["rules=[sparse,raw]", "refine.reward.success_source=simulator", "refine.env.views=[top]"],
            "unknown view of the",
        ),
        (
            ["rules=[shaped,sigmoid_reference]", "task_presets.open_drawer.rollout_steps=59"],
            "rollout_steps=59: rule=sigmoid",
        ),
        (["rules=[shaped,gated]", *RLPD], "needs rules that are known step by step, not gated"),
        (["rules=[shaped]", "clone.obs_mode=proprio+embeddings", *RLPD], "is for policies of the state, not"),
    ],
)
def test_invalid_settings_fail_before_anything_runs(args, message, tmp_path, capsys):
    assert main(["compare", *args, f"out={tmp_path / 'run'}"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_stored_cells_are_still_those_of_their_command() -> None:
    """A new key of a command must not change what stored results depend on: nobody would see that they are gone."""
    stored = [json.loads(line) for line in (ROOT / "docs/results/refine_rules.jsonl").read_text().splitlines()]
    keys = ["tasks=[lift_cube]", "rules=[shaped,sparse,hold,raw,difference]", "refine.reward.success_source=simulator"]
    config = compose_typed("compare", keys, CompareConfig)
    digest = reward_model_digest(replace(config.refine, checkpoint=config.checkpoint))
    cache = open_results_cache(ROOT / "docs/results/refine.md", "rules")
    for entry in stored:
        task, seed, rule = entry["cell"].split("/")
        settings = make_recipe(config, int(seed), task, rule).cache_settings(digest)[1]
        assert cache.read(entry["cell"], settings) == entry["result"], entry["cell"]
