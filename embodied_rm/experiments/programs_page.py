"""The results of `embodied-rm bench programs` as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from embodied_rm.experiments.comparison import CellResult, filter_by_rule, group_by_task_with_total, rollout_ratio
from embodied_rm.experiments.results_page import companion_path
from embodied_rm.metrics import paired_difference
from embodied_rm.report.markdown import markdown_table

BASELINE, BEST = "dense", "best program"
ARMS = (BASELINE, "first program", BEST, "best of random changes")
"""What policies learn from: the simulator's progress, and programs as potentials."""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What the searches for the programs of a task led to; `written` by a language model, `changed` at random."""

    sources: Mapping[str, str]  # arm -> program
    fitness: Mapping[str, float]  # designer -> fitness of its best program
    refused: Mapping[str, int]  # designer -> programs that the critic refused


def markdown_section(searches: Mapping[str, SearchResult], cells: Sequence[CellResult], budget: int, page: Path) -> str:
    """Return the results as Markdown; the rule of a cell is its arm. `budget`: refinements per search."""
    rows = []
    for task, task_cells in group_by_task_with_total(cells).items():
        for arm in ARMS:
            own = filter_by_rule(task_cells, arm)
            rollouts = [cell.rollouts_to_success(0.8) for cell in own]
            median = float(np.median([np.inf if count is None else count for count in rollouts]))
            success = [cell.refined_success for cell in own]
            rows.append(
                (
                    task,
                    arm,
                    f"{fmean(cell.cloned_success for cell in own):.3f}",
                    f"{fmean(success):.3f}",
                    difference_text(success, [cell.refined_success for cell in filter_by_rule(task_cells, BASELINE)]),
                    f"{median:.0f}" if np.isfinite(median) else "not reached",
                )
            )
    header = ("task", "reward", "cloned", "refined", f"minus `{BASELINE}`, 95 %", "episodes to 0.8")
    search_rows = [
        (task, f"{s.fitness['written']:.3f}", f"{s.fitness['changed']:.3f}", *(str(s.refused[k]) for k in s.refused))
        for task, s in searches.items()
    ]
    search_header = ("task", "fitness, language model", "fitness, random changes", "refused", "refused, random changes")
    num_seeds = len({cell.seed for cell in cells})
    lines = [
        "## Policies that learn from programs",
        "",
        f"`embodied-rm bench programs`: each search tries {budget} programs on a policy of its own. The refinements "
        f"here start from other demonstrations, with {num_seeds} paired seeds and 200 evaluation episodes; success is "
        f"the simulator's. All cells as data: `{companion_path(page, '', '.jsonl').name}`.",
        "",
        *markdown_table(header, rows),
        "",
        "Episodes to 0.8 with the best program, as a ratio to those with the others: geometric mean over pairs, and",
        "the one-sided p-value of a permutation test.",
        "",
        *markdown_table(("task", *(f"ratio to {arm}, p" for arm in ARMS if arm != BEST)), ratio_rows(cells)),
        "",
        "Searches. Fitness: mean of the success rate over training and that at its end.",
        "",
        *markdown_table(search_header, search_rows),
    ]
    for task, search in searches.items():
        lines += ["", f"Best program for `{task}`:", "", "```", search.sources[BEST].strip(), "```"]
    return "\n".join(lines)


def ratio_rows(cells: Sequence[CellResult]) -> list[tuple[str, ...]]:
    """Return, per task, the episodes to 0.8 with the best program as a ratio to those of each other arm."""
    rows = []
    for task, task_cells in group_by_task_with_total(cells).items():
        best = filter_by_rule(task_cells, BEST)
        ratios = [rollout_ratio(best, filter_by_rule(task_cells, arm), 0.8) for arm in ARMS if arm != BEST]
        rows.append((task, *(f"{ratio:.2f}, {p:.3f}" for ratio, p in ratios)))
    return rows


def difference_text(values: Sequence[float], baseline: Sequence[float]) -> str:
    """Return the mean paired difference with its interval; "-" for the baseline itself."""
    if list(values) == list(baseline):
        return "-"
    mean, low, high = paired_difference(values, baseline)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
