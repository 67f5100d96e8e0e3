"""Learn tasks from one demonstration and 150 episodes on a learned reward: python benchmarks/one_demonstration.py

A policy is cloned from the demonstration and its mirror image, alike all over the table, and refined by
`algorithm=rlpd`. The reward model alone pays and ends episodes: the bundled one or, for a task that it was not trained
on, the bundled one adapted to the same demonstration. Each phase is a command with its own run folder;
interrupted runs are resumed, and finished cells are not measured again. Writes docs/results/one_demonstration.md and
one_demonstration.jsonl.
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
from embodied_rm.report.markdown import markdown_table
from embodied_rm.rl.watch.log_rows import read_rows, training_success
from embodied_rm.text_file import parse_json_lines

SEEDS = (1, 2, 3, 4, 5)
PAGE = Path("docs/results/one_demonstration.md")
TASKS = ("turn_lever", "open_drawer", "close_drawer")
ADAPTED_TASKS = ("close_drawer",)  # unknown to the bundled model
BUNDLED_MODEL = "assets/checkpoints/tabletop"
VIEW_ARGS = ("env.views=[front,side,wrist]",)
COLLECT_ARGS = ("num_successes=1", "num_failures=0", *VIEW_ARGS)
CLONE_ARGS = ("num_demonstrations=1", "translation_invariant=true", "mirror_images=true")
REFINE_ARGS = (
    *("algorithm=rlpd", "rlpd.recorded_share=0.2", "rlpd.updates_per_step=4", "env.num_envs=5", "rollout_steps=10"),
    *("iterations=200", "max_episodes=145", "eval_episodes=0", "stop_patience=1000", *VIEW_ARGS),
    *("reward.success_in_each_view=true", "reward.success_threshold=0.7"),
)
"""With five environments, about five episodes end in the last iteration."""
Cell = Mapping[str, Any]  # what `measure` returned


def measure(folder: Path, task: str, seed: int) -> dict[str, float]:
    """Record, clone, adapt where needed, and refine; return success and training episodes."""
    common = [f"seed={seed}"]
    data = run_once(folder / "demonstration", ["collect", f"tasks=[{task}]", *COLLECT_ARGS, *common])
    policy = run_once(folder / "clone", ["clone", f"task={task}", f"data={data}", *CLONE_ARGS, *common])
    model = []
    if task in ADAPTED_TASKS:
        adapted = run_once(folder / "model", ["adapt", f"data={data}", f"init_from={BUNDLED_MODEL}", *common])
        model = [f"checkpoint={adapted}"]
    learner = [f"task={task}", f"policy={policy}", f"recorded_data={data}", *REFINE_ARGS, *model, *common]
    run = run_once(folder / "refine", ["refine", *learner])
    metrics, rows = json.loads((run / "metrics.json").read_text())["tasks"][task], read_rows(run / "progress.jsonl")
    believed, true = training_success(rows)
    return {
        "cloned": metrics["cloned_success"],
        "refined": metrics["refined_success"],
        "episodes": metrics["training_episodes"],
        "believed": believed,
        "true": true,
    }


def cell_settings(task: str, seed: int) -> dict[str, Any]:
    """Return everything that decides a cell."""
    commands = {"collect": COLLECT_ARGS, "clone": CLONE_ARGS, "refine": REFINE_ARGS}
    return {"task": task, "seed": seed, **commands, "adapted": task in ADAPTED_TASKS}


def finished_cells(path: Path) -> dict[str, list[Cell]]:
    """Return task -> the stored cells of its seeds, those of earlier calls too."""
    cells: dict[str, dict[str, Cell]] = defaultdict(dict)
    for line in parse_json_lines(path):
        task, seed = line["cell"].split("/")
        cells[task][seed] = line["result"]
    return {task: list(seeds.values()) for task, seeds in cells.items()}


def table_row(task: str, cells: Sequence[Cell]) -> list[str]:
    """Return the means of a task, its worst seed and its most episodes."""
    means = [fmean(cell[name] for cell in cells) for name in ("cloned", "refined")]
    worst, most = min(cell["refined"] for cell in cells), max(cell["episodes"] for cell in cells)
    shares = [fmean(cell[name] for cell in cells) for name in ("believed", "true")]
    numbers = (*means, worst, *shares)
    return [task, f"{len(cells)}", *(f"{number:.3f}" for number in numbers), f"{most:.0f}"]


def markdown_section(cells: Mapping[str, Sequence[Cell]]) -> str:
    """Return the results as Markdown."""
    rows = [table_row(f"`{task}`", found) for task, found in cells.items()]
    if len(cells) > 1:
        rows.append(table_row("all", [cell for found in cells.values() for cell in found]))
    unknown = ", ".join(f"`{task}`" for task in ADAPTED_TASKS)
    header = ["task", "seeds", "cloned", "refined", "worst seed", "believed", "true", "most episodes"]
    lines = [
        "## One demonstration, 150 episodes",
        "",
        "`python benchmarks/one_demonstration.py`: policies are cloned from one demonstration",
        f"(`{' '.join(CLONE_ARGS[1:])}`) and refined (`{' '.join(REFINE_ARGS)}`).",
        f"The reward model pays and ends episodes. The bundled one does not know {unknown}: it is adapted to the same",
        "demonstration. Cloned and refined: success of 200 evaluation episodes. Believed and true: share of all",
        "training episodes that the model counts as a success, and in which the simulator reports one before the model",
        "ends them. All cells as data: `one_demonstration.jsonl`.",
        "",
        *markdown_table(header, rows),
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure the missing cells and write the results page."""
    arguments = parse_cell_arguments(__doc__, "one_demonstration", PAGE, SEEDS, TASKS)
    cache = open_results_cache(arguments.page)
    for seed, task in product(arguments.seeds, arguments.tasks):
        folder, name = arguments.out / task / f"{seed}", f"{task}/{seed}"
        work = partial(measure, folder, task, seed)
        cell = cache.get_or_measure(name, cell_settings(task, seed), folder / "cell", work)
        logging.info("%s: %s", name, cell)
        section = markdown_section(finished_cells(companion_path(arguments.page, "", ".jsonl")))
        write_section(arguments.page, "one_demonstration", section, title="One demonstration")


if __name__ == "__main__":
    main()
