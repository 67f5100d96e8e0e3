"""The results of `embodied-rm bench dpo` as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from embodied_rm.experiments.results_page import companion_path
from embodied_rm.metrics import paired_difference
from embodied_rm.report.markdown import markdown_table

CLONE, TRUE_PROGRESS = "clone", "true_progress"
ERROR_COLUMNS = {
    "error_observation": "observation",
    "error_observation_copied": "copied",
    "error_embedding": "embedding",
    "error_embedding_copied": "copied",
    "kendall": "Kendall's tau",
}

CellResult = Mapping[str, float]


def markdown_section(
    results: Mapping[str, Sequence[CellResult]], settings: Mapping[str, Any], methods: Sequence[str], page: Path
) -> str:
    """Return the results as Markdown.

    Args:
        results: Task -> results of its seeds.
        settings: Config of the benchmark.
        methods: Names of the policies; the first is the cloned one.
        page: Where it will be written.
    """
    exception = (
        f", except for `{TRUE_PROGRESS}`, whose chunks the simulator compares" if TRUE_PROGRESS in methods else ""
    )
    all_cells = [cell for cells in results.values() for cell in cells]
    lines = [
        "## Preference optimization in a world model",
        "",
        f"`embodied-rm bench dpo`: {settings['num_demonstrations']} demonstrations per seed, half of them failures, "
        f"and {settings['num_rollouts']} rollouts with exploration noise of a policy that was cloned from a few of "
        "them. `clone` imitates all recorded successes. The others are improved from it without an environment "
        f"step{exception}. Seeds with separate recordings: {settings['num_seeds']}. Success over "
        f"{settings['eval_episodes']} episodes. All cells as data: `{companion_path(page, '', '.jsonl').name}`.",
        "",
        *markdown_table(
            ("task", *(f"`{method}`" for method in methods)),
            [
                *((f"`{task}`", *means(cells, methods, 3)) for task, cells in results.items()),
                ("mean", *means(all_cells, methods, 3)),
            ],
        ),
        "",
        f"Difference to `{CLONE}` over all tasks and seeds, {len(all_cells)} pairs (Student's t):",
        "",
        *markdown_table(("reward of the chunks", "difference", "95 % interval"), differences(all_cells, methods[1:])),
        "",
        "Errors of the world model after five actions on held-out episodes, in standard deviations of the change in "
        "one step, beside those of a model that predicts no change. Kendall's tau compares imagined and true progress "
        "of eight chunks from the same state, in the first 25 steps of episodes:",
        "",
        *markdown_table(
            ("task", *ERROR_COLUMNS.values()),
            [
                *((f"`{task}`", *means(cells, tuple(ERROR_COLUMNS), 2)) for task, cells in results.items()),
                ("mean", *means(all_cells, tuple(ERROR_COLUMNS), 2)),
            ],
        ),
    ]
    return "\n".join(lines)


def means(cells: Sequence[CellResult], names: Sequence[str], digits: int) -> list[str]:
    """Return the mean of each named result over cells."""
    return [f"{fmean(cell[name] for cell in cells):.{digits}f}" for name in names]


def differences(cells: Sequence[CellResult], methods: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return each method, its difference to the clone, and the interval."""
    rows = []
    for method in methods:
        mean, low, high = paired_difference([cell[method] for cell in cells], [cell[CLONE] for cell in cells])
        rows.append((f"`{method}`", f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}"))
    return rows
