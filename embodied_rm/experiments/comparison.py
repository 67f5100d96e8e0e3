"""Statistics that compare reward rules by the learning curves of paired refinements (pure functions)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.metrics import (
    first_iteration_reaching,
    kendall_tau_a,
    mean_band,
    paired_difference,
    paired_permutation,
)


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """Result of one refinement: a task, a seed and a rule."""

    task: str
    seed: int
    rule: str
    success_source: str  # source of success in training: model or simulator
    policy_digest: str  # digest of the cloned policy
    cloned_success: float  # success rate of the cloned policy
    refined_success: float  # success rate of the refined policy
    success_curve: tuple[float, ...]  # success rate after every iteration, up to an early stop
    predicted_success: tuple[float | None, ...]
    """Fraction of each iteration's training episodes with predicted success; None if no episode ended."""
    hover_rates: tuple[float | None, ...]
    """Fraction of them that end at the time limit without success, but with a high predicted potential."""
    alarm_iterations: tuple[int, ...]  # iterations with a hacking alarm
    cumulative_episodes: tuple[int, ...]  # number of training episodes up to the end of each iteration
    seconds_by_phase: dict[str, float]  # phase of refinement -> time, s

    @classmethod
    def from_json(cls, payload: Mapping[str, Any]) -> CellResult:
        """Build a result from its JSON form, `dataclasses.asdict`."""
        kwargs: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in payload.items()}
        return cls(**kwargs)

    def rollouts_to_success(self, target_success: float) -> int | None:
        """Return the training episodes until success first reached the target; None if it never did."""
        iteration = first_iteration_reaching(self.success_curve, target_success)
        return None if iteration is None else self.cumulative_episodes[iteration - 1]

    def success_after(self, episodes: int) -> float:
        """Return the success rate after a budget of training episodes; before the first iteration, the cloned one."""
        steps = zip(self.success_curve, self.cumulative_episodes, strict=True)
        rates = [rate for rate, num_episodes in steps if num_episodes <= episodes]
        return rates[-1] if rates else self.cloned_success


def check_same_policy(reference: CellResult, rule: str, policy: str) -> None:
    """Raise `UserError` if a cell of the same task and seed starts from another policy than the reference cell.

    Another machine or version of the code may clone a different policy. `policy` is its digest.
    """
    if reference.policy_digest != policy:
        raise UserError(
            f"{reference.task}, seed {reference.seed}: {reference.rule} and {rule} started from different policies "
            "and cannot be paired: delete one of their lines in the results cache and measure it again"
        )


def ranking_agreement(cells: Sequence[CellResult]) -> float | None:
    """Return Kendall's tau_a between the rankings of all acting policies by the model and by the simulator.

    Only cells with success_source "model" count: the simulator ends episodes at the first successful step, before the
    model can confirm the success. None with fewer than two policies that the model ranks.
    """
    model_cells = [cell for cell in cells if cell.success_source == "model"]
    pairs = [pair for cell in model_cells for pair in _acting_policy_success(cell) if pair[0] is not None]
    return kendall_tau_a(*zip(*pairs, strict=True)) if len(pairs) > 1 else None


def _acting_policy_success(cell: CellResult) -> Iterator[tuple[float | None, float]]:
    """Yield (predicted, true) success rates of the policy that acted in each iteration.

    The evaluation after an iteration is that of the policy that acts in the next one.
    """
    return zip(cell.predicted_success, (cell.cloned_success, *cell.success_curve[:-1]), strict=True)


def pad_curve(curve: Sequence[float], length: int) -> list[float]:
    """Extend a curve that stopped early with its last value."""
    return [*curve, *[curve[-1]] * (length - len(curve))]


def success_band(cells: Sequence[CellResult]) -> tuple[list[float], list[float], list[float]]:
    """Return mean, lower and upper bound of the success curves, starting with the cloned policies."""
    length = max(len(cell.success_curve) for cell in cells) + 1
    mean, low, high = mean_band([pad_curve((cell.cloned_success, *cell.success_curve), length) for cell in cells])
    return mean.tolist(), low.tolist(), high.tolist()


def summarize_cells(cells: Sequence[CellResult], target_success: float) -> dict[str, float | int | None]:
    """Return the summary of the cells of one rule, one value per column of the table.

    `rollouts_to_target` is the median over seeds, where a seed that never reached the target counts as infinite; None
    unless more than half of them reached it.
    """
    rollouts = [cell.rollouts_to_success(target_success) for cell in cells]
    median = float(np.median([np.inf if n is None else n for n in rollouts]))
    final_success = [cell.refined_success for cell in cells]
    return {
        "seeds": len(cells),
        "cloned_success": float(np.mean([cell.cloned_success for cell in cells])),
        "refined_success": float(np.mean(final_success)),
        "worst_seed": min(final_success),
        "num_reached": sum(n is not None for n in rollouts),
        "rollouts_to_target": median if np.isfinite(median) else None,
        "success_after_150": float(np.mean([cell.success_after(150) for cell in cells])),
        "ranking_agreement": ranking_agreement(cells),
        "hover_rate": _mean_of_known([cell.hover_rates[-1] for cell in cells]),
        "seeds_with_alarm": sum(bool(cell.alarm_iterations) for cell in cells),
        "seconds_per_seed": float(np.mean([sum(cell.seconds_by_phase.values()) for cell in cells])),
    }


def phase_time_shares(cells: Sequence[CellResult]) -> dict[str, float]:
    """Return phase -> its fraction of the time of all cells."""
    phases = cells[0].seconds_by_phase
    seconds_by_phase = {phase: sum(cell.seconds_by_phase[phase] for cell in cells) for phase in phases}
    return {phase: seconds / sum(seconds_by_phase.values()) for phase, seconds in seconds_by_phase.items()}


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None."""
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def rollout_ratio(
    cells: Sequence[CellResult], other: Sequence[CellResult], target_success: float
) -> tuple[float, float]:
    """Compare the rollouts to the target success over paired cells.

    A run that never reaches the target is censored at the later of its own last episode and the other run's crossing,
    which is a lower bound. If neither reaches it, the pair counts as equal. Returns the geometric mean of the ratio
    cells / other, and the one-sided p-value of a paired permutation test of the logarithms.
    """
    log_rollouts = [_log_rollouts(cell, paired_cell, target_success) for cell, paired_cell in _pair_cells(cells, other)]
    own_logs, other_logs = zip(*log_rollouts, strict=True)
    return float(np.exp(np.mean(own_logs) - np.mean(other_logs))), paired_permutation(own_logs, other_logs)


def success_difference(cells: Sequence[CellResult], other: Sequence[CellResult]) -> tuple[float, float, float]:
    """Return the mean paired difference of final success, cells minus other, and its 95 % interval."""
    pairs = _pair_cells(cells, other)
    return paired_difference([own.refined_success for own, _ in pairs], [paired.refined_success for _, paired in pairs])


def success_gain(cells: Sequence[CellResult]) -> tuple[float, float, float]:
    """Return the mean gain of refinement over cloning in success, and its 95 % interval."""
    return paired_difference([cell.refined_success for cell in cells], [cell.cloned_success for cell in cells])


def _pair_cells(cells: Sequence[CellResult], other: Sequence[CellResult]) -> list[tuple[CellResult, CellResult]]:
    """Pair the cells that have the same task and seed."""
    other_by_key = {(cell.task, cell.seed): cell for cell in other}
    return [(cell, other_by_key[cell.task, cell.seed]) for cell in cells if (cell.task, cell.seed) in other_by_key]


def _log_rollouts(cell: CellResult, paired_cell: CellResult, target_success: float) -> tuple[float, float]:
    """Return the logarithms of both rollout counts, censored as in `rollout_ratio`."""
    first, second = cell.rollouts_to_success(target_success), paired_cell.rollouts_to_success(target_success)
    return censored_logs(first, cell.cumulative_episodes[-1], second, paired_cell.cumulative_episodes[-1])


def censored_logs(first: int | None, first_total: int, second: int | None, second_total: int) -> tuple[float, float]:
    """Return the logarithms of the counts of a pair; None, never, is the later of its total and the other count."""
    if first is None and second is None:
        return 0.0, 0.0
    first = max(first_total, second or 0) if first is None else first
    second = max(second_total, first) if second is None else second
    return float(np.log(max(1, first))), float(np.log(max(1, second)))


def filter_by_rule(cells: Sequence[CellResult], rule: str) -> list[CellResult]:
    """Return the cells of one rule."""
    return [cell for cell in cells if cell.rule == rule]


def group_by_task(cells: Sequence[CellResult]) -> dict[str, list[CellResult]]:
    """Return task -> its cells, in the order of first occurrence."""
    return {task: [cell for cell in cells if cell.task == task] for task in dict.fromkeys(cell.task for cell in cells)}


def group_by_task_with_total(cells: Sequence[CellResult]) -> dict[str, list[CellResult]]:
    """Return `group_by_task`, with an entry "all" if there are several tasks."""
    tasks = group_by_task(cells)
    return {**tasks, "all": list(cells)} if len(tasks) > 1 else tasks
