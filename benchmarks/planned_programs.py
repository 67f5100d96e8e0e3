"""A planner follows programs of a language model, without training: python benchmarks/planned_programs.py

The programs are those of `embodied-rm bench programs`, with the best fitness of their searches. `embodied-rm play
policy=planner` maximizes each in copies of the environments. Interrupted runs are resumed. Writes
docs/results/planned_programs.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from cli_process import run_once

from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.metrics.statistics import wilson_interval
from embodied_rm.report.markdown import markdown_table

SEARCHES, RESULTS_PAGE = Path("docs/results/programs.jsonl"), Path("docs/results/planned_programs.md")
NUM_EPISODES = 32
PLAY_ARGS = ("policy=planner", f"env.num_envs={NUM_EPISODES}", "env.views=[front]", "env.image_size=64", "seed=1000")


def read_programs() -> dict[str, str]:
    """Return task -> the best program of its search."""
    cells = map(json.loads, SEARCHES.read_text().splitlines())
    searches = {cell["cell"].removesuffix("/search"): cell["result"] for cell in cells if "/search" in cell["cell"]}
    return {task: result["sources"]["best program"] for task, result in searches.items()}


def count_successes(out: Path, task: str, source: str) -> int:
    """Return the number of episodes in which the simulator finds the task done."""
    path = out / f"{task}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    folder = run_once(out / task, ["play", f"task={task}", f"program={path}", *PLAY_ARGS])
    return int(json.loads((folder / "metrics.json").read_text())["play"]["successes"])


def results_page(successes: dict[str, int]) -> str:
    """Return the results as Markdown."""
    rows = []
    for task, count in successes.items():
        low, high = wilson_interval(count, NUM_EPISODES)
        rows.append((f"`{task}`", f"{count / NUM_EPISODES:.3f}", f"{low:.2f} to {high:.2f}"))
    return "\n".join(
        [
            "# A planner follows reward programs",
            "",
            "`python benchmarks/planned_programs.py`: a language model wrote the programs. Searches chose them by",
            "how policies learned from them (`docs/results/programs`).",
            f"`embodied-rm play policy=planner` maximizes them in {NUM_EPISODES} new episodes and trains nothing.",
            "The simulator's success evaluates.",
            "",
            *markdown_table(("task", "success", "95 % interval"), rows),
            "",
            f"{describe_machine()}.",
            "",
        ]
    )


def main() -> None:
    """Run the missing episodes and write the results page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/planned_programs"), help="folder of the runs")
    arguments = parser.parse_args()
    successes = {task: count_successes(arguments.out, task, source) for task, source in read_programs().items()}
    RESULTS_PAGE.write_text(results_page(successes))


if __name__ == "__main__":
    main()
