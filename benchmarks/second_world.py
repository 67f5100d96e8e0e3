"""A policy of one world goes on learning in another, with a helper and with starts of the first: \
python benchmarks/second_world.py

The first world is the default arm. There, `rlpd` refines a cloned policy on a pool of start states. The second world,
the "real" one, has the other arm, and other masses and friction. There, the policy is
refined from the same recordings: plain, with the expert that takes over where progress stalls, on the exported starts,
and with both (VLAC, TwinRL). The reward is the simulator's progress, so no reward model differs in quality. Each phase
is a command with its own run folder; interrupted runs are resumed, and finished cells are not measured again. Writes
docs/results/second_world.md and second_world.jsonl.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from cell_arguments import parse_cell_arguments
from cli_process import run_once

from embodied_rm.experiments.comparison import censored_logs
from embodied_rm.experiments.results_cache import ResultsCache, open_results_cache
from embodied_rm.experiments.results_page import write_section
from embodied_rm.metrics import first_iteration_reaching, paired_permutation
from embodied_rm.report.markdown import markdown_table
from embodied_rm.rl.watch.log_rows import read_rows

TASKS, SEEDS = ("stack_cubes", "turn_lever", "open_drawer"), (1, 2, 3)
TARGET_SUCCESS = 0.8
SECOND_WORLD = (
    "env.robot=six_axis",
    "env.randomize.friction=0.5",
    "env.randomize.mass=0.5",
)
TAKEOVER_ARGS = ("takeover.stall_steps=20", "takeover.min_gain=0.05")
METHODS = ("plain", "starts", "takeover", "both")
CAMERA_ARGS = ("env.views=[front]", "env.image_size=32")  # recordings need a view; no learner here looks at it
COLLECT_ARGS = ("num_successes=20", "num_failures=10", "action_noise=0.1", "speed_range=[1.0,1.0]", *CAMERA_ARGS)
CLONE_ARGS = ("num_demonstrations=10", "eval_episodes=32", "env.views=[]")
LEARNER_ARGS = (
    "algorithm=rlpd",
    "reward.rule=dense",
    "reward.success_source=simulator",
    "env.views=[]",
    "env.num_envs=5",
    "rollout_steps=50",
    "stop_patience=1000",
)
FIRST_WORLD_ARGS = ("start_pool_size=64", "iterations=20", "eval_episodes=0", "final_eval_episodes=40")
SECOND_WORLD_ARGS = (*SECOND_WORLD, "iterations=30", "eval_episodes=40", "final_eval_episodes=100")
Cell = Mapping[str, Any]  # what `measure` returned
PAGE = Path("docs/results/second_world.md")


def refine_first(folder: Path, task: str, seed: int) -> tuple[Path, Path]:
    """Record, clone and refine in the first world; return the run folders of the recordings and of the refinement."""
    common = [f"seed={seed}"]
    data = run_once(folder / "demonstrations", ["collect", f"tasks=[{task}]", *common, *COLLECT_ARGS])
    policy = run_once(folder / "clone", ["clone", f"task={task}", f"data={data}", *common, *CLONE_ARGS])
    learner = [f"task={task}", f"policy={policy}", f"recorded_data={data}", *common, *LEARNER_ARGS]
    return data, run_once(folder / "first", ["refine", *learner, *FIRST_WORLD_ARGS])


def method_args(method: str, first: Path) -> list[str]:
    """Return the arguments in which a method differs from plain refinement."""
    takeover = TAKEOVER_ARGS if method in ("takeover", "both") else ()
    return [*takeover, *([f"starts={first}"] if method in ("starts", "both") else [])]


def cell_settings(task: str, seed: int, method: str) -> dict[str, Any]:
    """Return everything that decides a cell."""
    return {
        "task": task,
        "seed": seed,
        "collect": COLLECT_ARGS,
        "clone": CLONE_ARGS,
        "refine": (LEARNER_ARGS, FIRST_WORLD_ARGS, SECOND_WORLD_ARGS, method_args(method, Path("first"))),
    }


def measure(folder: Path, task: str, seed: int, method: str) -> dict[str, Any]:
    """Refine in the second world; return success at the start and at the end, and the curves of the run."""
    data, first = refine_first(folder, task, seed)
    learner = [f"task={task}", f"policy={first}", f"recorded_data={data}", f"seed={seed}", *LEARNER_ARGS]
    run = run_once(folder / method, ["refine", *learner, *SECOND_WORLD_ARGS, *method_args(method, first)])
    rows, metrics = read_rows(run / "progress.jsonl"), json.loads((run / "metrics.json").read_text())["tasks"][task]
    return {
        "start": metrics["cloned_success"],
        "end": metrics["refined_success"],
        "success": [row["eval_success_rate"] for row in rows],
        "episodes": np.cumsum([row["episodes"] for row in rows]).tolist(),
        "helped_episodes": np.cumsum([row["helped_episodes"] for row in rows]).tolist(),
    }


def episodes_to_target(cell: Cell) -> int | None:
    """Return the training episodes until the evaluation reached the target; None if it never did."""
    iteration = first_iteration_reaching(cell["success"], TARGET_SUCCESS)
    return None if iteration is None else int(cell["episodes"][iteration - 1])


def ratio_to(cells: Sequence[Cell], plain: Sequence[Cell]) -> tuple[float, float]:
    """Return the geometric mean of the ratio of the episodes in pairs, and its p-value."""
    logs = [
        censored_logs(episodes_to_target(own), own["episodes"][-1], episodes_to_target(other), other["episodes"][-1])
        for own, other in zip(cells, plain, strict=True)
    ]
    own_logs, plain_logs = zip(*logs, strict=True)
    return float(np.exp(np.mean(own_logs) - np.mean(plain_logs))), paired_permutation(own_logs, plain_logs)


def table_row(task: str, method: str, cells: Sequence[Cell], plain: Sequence[Cell]) -> list[str]:
    """Return the row of a method over the seeds of a task, or over all tasks."""
    counts = [episodes_to_target(cell) for cell in cells]
    median = np.median([np.inf if count is None else count for count in counts])
    helped = [cell["helped_episodes"][-1] / cell["episodes"][-1] for cell in cells]
    means = [np.mean([cell[name] for cell in cells]) for name in ("start", "end")]
    ratio, p_value = ratio_to(cells, plain)
    return [
        task,
        method,
        *(f"{mean:.3f}" for mean in means),
        f"{median:.0f}" if np.isfinite(median) else "not reached",
        f"{sum(count is not None for count in counts)} of {len(counts)}",
        f"{np.mean(helped):.2f}",
        *(("-", "-") if method == "plain" else (f"{ratio:.2f}", f"{p_value:.3f}")),
    ]


def finished_pairs(cache: ResultsCache) -> dict[tuple[str, int], dict[str, Cell]]:
    """Return the cells by method of every task and seed that has them all."""
    pairs: dict[tuple[str, int], dict[str, Cell]] = {}
    for task, seed in product(TASKS, SEEDS):
        cells = {m: cache.read(f"{task}/{seed}/{m}", cell_settings(task, seed, m)) for m in METHODS}
        found: dict[str, Cell] = {method: cell for method, cell in cells.items() if cell is not None}
        if len(found) == len(METHODS):
            pairs[task, seed] = found
    return pairs


def markdown_section(pairs: Mapping[tuple[str, int], Mapping[str, Cell]]) -> str:
    """Return the results of tasks and seeds, each with all methods, as Markdown."""
    rows = []
    for task in (*dict.fromkeys(task for task, _ in pairs), "all"):
        chosen = [cells for pair, cells in pairs.items() if task in (pair[0], "all")]
        by_method = {method: [cells[method] for cells in chosen] for method in METHODS}
        rows += [table_row(task, method, by_method[method], by_method["plain"]) for method in METHODS]
    header = ["task", "second world", "success at the start", "at the end", f"episodes to {TARGET_SUCCESS:g}"]
    header += ["runs that reach it", "share with help", "ratio to plain", "p"]
    lines = [
        "## Help and starts of another world",
        "",
        "`python benchmarks/second_world.py`: `rlpd` refines a cloned policy in the first world, the arm `panda`, with",
        "`start_pool_size=64`. It goes on in the second world, the arm `six_axis` with drawn friction",
        f"and mass (`{' '.join(SECOND_WORLD)}`). There, `takeover` has the task's expert act",
        f"(`{' '.join(TAKEOVER_ARGS)}`), `starts` begins at the starts of the first world by their failure rates, and",
        f"`both` has both. The reward is the simulator's progress. Paired cells: {len(pairs)}. Episodes: training",
        "episodes of the second world, those with help included, until 0.8 of 40 evaluation episodes without help",
        "succeed; median. Ratio: geometric mean over pairs, with the p-value of a paired permutation test; a run that",
        "never reaches the target counts with its last episode, or the other run's if that is later. All cells:",
        "`second_world.jsonl`.",
        "",
        *markdown_table(header, rows),
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure the missing cells and write the results page."""
    arguments = parse_cell_arguments(__doc__, "second_world", PAGE, SEEDS, TASKS)
    cache = open_results_cache(arguments.page)
    for seed, task in product(arguments.seeds, arguments.tasks):
        folder = arguments.out / task / f"{seed}"
        for method in METHODS:
            name = f"{task}/{seed}/{method}"
            work = partial(measure, folder, task, seed, method)
            cell = cache.get_or_measure(name, cell_settings(task, seed, method), folder / "cells" / method, work)
            logging.info("%s: %s episodes", name, episodes_to_target(cell))
        if pairs := finished_pairs(cache):
            write_section(arguments.page, "second_world", markdown_section(pairs), title="A second world")


if __name__ == "__main__":
    main()
