"""A reward model goes on learning from its own learner, against one that stays: python benchmarks/teach_reward_model.py

With one camera alone, learners deceive the bundled model. Each policy is cloned and refined twice on that model's
progress and success: as it is, and with `refine teach=`, labeled by the simulator. Each phase is a command with its own
run folder; interrupted runs are resumed, and finished cells are not measured again. `docs/examples/metaworld/teach.py`
does the same in Meta-World, and stores its cells in the same file. Writes docs/results/teaching.md and teaching.jsonl.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from cell_arguments import parse_cell_arguments
from cli_process import run_once

from embodied_rm.experiments.results_cache import open_results_cache
from embodied_rm.experiments.results_page import companion_path, write_section
from embodied_rm.metrics import paired_difference
from embodied_rm.report.markdown import markdown_table
from embodied_rm.rl.watch.log_rows import read_rows, training_success
from embodied_rm.text_file import parse_json_lines

SEEDS = (1, 2, 3)
PAGE = Path("docs/results/teaching.md")
CAMERAS = {"stack_cubes": "front", "place_in_drawer": "front", "place_in_bowl": "side"}  # task -> the only camera
COLLECT_ARGS = ("num_successes=20", "num_failures=20", "action_noise=0.1", "speed_range=[1.0,1.0]")
CLONE_ARGS = {
    "stack_cubes": ("num_demonstrations=6", "log_std_init=-1.5"),
    "place_in_drawer": ("num_demonstrations=4", "log_std_init=-1.0"),
    "place_in_bowl": ("num_demonstrations=4", "log_std_init=-1.0"),
}
TASK_ARGS = {
    "stack_cubes": ("rollout_steps=120", "ppo.gamma=0.985", "ppo.gae_lambda=0.9"),
    "place_in_drawer": ("rollout_steps=80", "ppo.gamma=0.98", "ppo.gae_lambda=0.85"),
    "place_in_bowl": ("rollout_steps=80", "ppo.gamma=0.98", "ppo.gae_lambda=0.85"),
}
"""Settings of `compare` for the tasks."""
REFINE_ARGS = ("iterations=40", "reward.score_every=2", "reward.success_patience=3", "stop_patience=1000")
ARM_ARGS: Mapping[str, tuple[str, ...]] = {
    "fixed": (),
    "taught": ("teach.every=5", "teach.num_envs=32", "teach.max_episodes=800"),
}
NUM_LAST_ITERATIONS = 5  # over which belief and truth are compared
Cell = Mapping[str, Any]  # what `measure` returned


def measure(folder: Path, task: str, seed: int, arm: str) -> dict[str, float]:
    """Record, clone and refine; return what the model believes, and what is true."""
    common = [f"seed={seed}", f"env.views=[{CAMERAS[task]}]"]
    data = run_once(folder / "data", ["collect", f"tasks=[{task}]", *COLLECT_ARGS, *common])
    policy = run_once(folder / "clone", ["clone", f"task={task}", f"data={data}", *CLONE_ARGS[task], *common])
    teach = [*ARM_ARGS[arm], f"teach.data={data}"] if ARM_ARGS[arm] else []
    learner = [f"task={task}", f"policy={policy}", *TASK_ARGS[task], *REFINE_ARGS, *teach, *common]
    run = run_once(folder / arm, ["refine", *learner])
    metrics = json.loads((run / "metrics.json").read_text())["tasks"][task]
    believed, true = training_success(read_rows(run / "progress.jsonl")[-NUM_LAST_ITERATIONS:])
    return {
        "cloned": metrics["cloned_success"],
        "refined": metrics["refined_success"],
        "believed": believed,
        "true": true,
        "alarms": len(metrics["alarms"]),
    }


def cell_settings(task: str, seed: int, arm: str) -> dict[str, Any]:
    """Return everything that decides a cell."""
    shared = {"collect": COLLECT_ARGS, "camera": CAMERAS[task], "clone": CLONE_ARGS[task]}
    return {"task": task, "seed": seed, **shared, "refine": (TASK_ARGS[task], REFINE_ARGS, ARM_ARGS[arm])}


def finished_pairs(path: Path) -> dict[str, list[tuple[int, Cell, Cell]]]:
    """Return task -> seed, fixed and taught cell of the seeds that have both."""
    cells: dict[str, dict[int, dict[str, Cell]]] = defaultdict(lambda: defaultdict(dict))
    for line in parse_json_lines(path):
        task, seed, arm = line["cell"].split("/")
        cells[task][int(seed)][arm] = line["result"]
    pairs = {
        task: [(seed, arms["fixed"], arms["taught"]) for seed, arms in sorted(seeds.items()) if len(arms) == 2]
        for task, seeds in cells.items()
    }
    return {task: found for task, found in pairs.items() if found}


def table_row(task: str, arm: str, cells: Sequence[Cell]) -> list[str]:
    """Return the means of an arm, and the largest difference of belief and truth."""
    means = [fmean(cell[name] for cell in cells) for name in ("cloned", "refined", "believed", "true")]
    gap = max(abs(cell["believed"] - cell["true"]) for cell in cells)
    alarms = fmean(cell["alarms"] for cell in cells)
    return [task, arm, f"{len(cells)}", *(f"{mean:.3f}" for mean in means), f"{gap:.3f}", f"{alarms:.1f}"]


def markdown_section(pairs: Mapping[str, Sequence[tuple[int, Cell, Cell]]]) -> str:
    """Return the results as Markdown."""
    rows, differences = [], []
    for task, found in pairs.items():
        _, fixed, taught = zip(*found, strict=True)
        rows += [table_row(task, "fixed", fixed), table_row(task, "taught", taught)]
        values = paired_difference([cell["refined"] for cell in taught], [cell["refined"] for cell in fixed])
        differences.append([task, *(f"{value:+.3f}" for value in values)])
    cameras = ", ".join(f"`env.views=[{camera}]` for `{task}`" for task, camera in CAMERAS.items())
    header = ["task", "model", "seeds", "cloned", "refined", "believed", "true"]
    header += ["largest difference", "iterations with alarm"]
    lines = [
        "## Fixed and taught",
        "",
        "`python benchmarks/teach_reward_model.py`: the bundled model pays and ends episodes",
        f"(`{' '.join(REFINE_ARGS)}`; {cameras}). The taught one goes on learning",
        f"(`{' '.join(ARM_ARGS['taught'])}`) from episodes of its learner with the simulator's",
        "outcome, and from 20 recorded successes and 20 failures. `python docs/examples/metaworld/teach.py` does so in",
        "`push-v3`, with a model of 20 demonstrations.",
        "",
        "Cloned and refined: success of evaluation episodes, of the mean action. Believed and true: share of training",
        f"episodes, with exploration noise, in the last {NUM_LAST_ITERATIONS} iterations: those that the model counts",
        "as successes, and those in which the simulator reports one before the model ends them. Largest difference:",
        "of believed and true, over seeds. All cells as data: `teaching.jsonl`.",
        "",
        *markdown_table(header, rows),
        "",
        *markdown_table(["task", "refined, taught minus fixed", "lower bound, 95 %", "upper bound"], differences),
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure the missing cells and write the results page."""
    arguments = parse_cell_arguments(__doc__, "teach_reward_model", PAGE, SEEDS, [*CLONE_ARGS])
    cache = open_results_cache(arguments.page)
    for seed, task, arm in product(arguments.seeds, arguments.tasks, ARM_ARGS):
        folder, name = arguments.out / task / f"{seed}", f"{task}/{seed}/{arm}"
        work = partial(measure, folder, task, seed, arm)
        cell = cache.get_or_measure(name, cell_settings(task, seed, arm), folder / "cells" / arm, work)
        logging.info("%s: %s", name, cell)
        if pairs := finished_pairs(companion_path(arguments.page, "", ".jsonl")):
            section = markdown_section(pairs)
            write_section(arguments.page, "teach_reward_model", section, title="A reward model that goes on learning")


if __name__ == "__main__":
    main()
