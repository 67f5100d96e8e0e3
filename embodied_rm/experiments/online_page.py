"""The results of `embodied-rm bench online` as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from embodied_rm.experiments.comparison import CellResult, group_by_task_with_total, rollout_ratio
from embodied_rm.experiments.results_page import companion_path
from embodied_rm.report.markdown import markdown_table

BASELINE = "clone"


def largest_drop(cell: CellResult) -> float:
    """Return how far success fell below that of the policy that refinement started from, at most; 0 if never.

    The first iterations train only critics, so the first evaluation is of that policy, on the same episodes.
    """
    return cell.success_curve[0] - min(cell.success_curve)


def summary(cells: Sequence[CellResult], target_success: float) -> dict[str, str]:
    """Return the statistics of one method over its cells, as text."""
    rollouts = [cell.rollouts_to_success(target_success) for cell in cells]
    median = float(np.median([np.inf if count is None else count for count in rollouts]))
    return {
        "success at the start": f"{fmean(cell.cloned_success for cell in cells):.3f}",
        "success at the end": f"{fmean(cell.refined_success for cell in cells):.3f}",
        f"episodes to {target_success:g}": f"{median:.0f}" if np.isfinite(median) else "not reached",
        "largest drop, mean": f"{fmean(map(largest_drop, cells)):.3f}",
        "largest drop, worst": f"{max(map(largest_drop, cells)):.3f}",
    }


def ratio_columns(
    cells: Sequence[CellResult], baseline: Sequence[CellResult], method: str, target_success: float
) -> tuple[str, str]:
    """Return the ratio of the episodes to those of the baseline, and its p-value; "-" where there is none."""
    if not baseline or method == BASELINE:
        return "-", "-"
    ratio, p_value = rollout_ratio(cells, baseline, target_success)
    return f"{ratio:.2f}", f"{p_value:.3f}" if np.isfinite(p_value) else "-"


def markdown_section(cells: Sequence[CellResult], settings: Mapping[str, Any], page: Path) -> str:
    """Return the results as Markdown; the rule of a cell is its method."""
    target, methods = settings["target_success"], settings["methods"]
    rows: list[tuple[str, ...]] = []
    header: tuple[str, ...] = ()
    for task, task_cells in group_by_task_with_total(cells).items():
        baseline = [cell for cell in task_cells if cell.rule == BASELINE]
        for method in methods:
            own = [cell for cell in task_cells if cell.rule == method]
            statistics = summary(own, target)
            header = ("task", "start", *statistics, f"ratio to `{BASELINE}`", "p")
            rows.append((task, f"`{method}`", *statistics.values(), *ratio_columns(own, baseline, method, target)))
    lines = [
        "## Refinement after offline learning",
        "",
        f"`embodied-rm bench online`: {settings['num_demonstrations']} demonstrations per seed, half of them failures, "
        f"and {settings['num_rollouts']} rollouts of a policy that was cloned from a few of them. `clone` imitates all "
        "recorded successes. `iql` learns from all recordings by their outcome. `dpo` improves the clone in a world "
        f"model. PPO refines each on the simulator's success, with {settings['num_envs']} environments. `hnpg` refines "
        "the clone with a critic that learns from the recordings too, `rlpd` with the recordings in its batches. "
        f"Seeds: {settings['num_seeds']}, "
        f"{settings['eval_episodes']} evaluation episodes per iteration. Largest drop: how far success falls below "
        "that at the start. Ratio: geometric mean of the episodes over those of the clone, with the p-value of a "
        f"paired permutation test. All cells as data: `{companion_path(page, '', '.jsonl').name}`.",
        "",
        *markdown_table(header, rows),
    ]
    return "\n".join(lines)
