"""Reward rules side by side, from the learning curves of paired refinements (pure)."""

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
    """One refinement: a task, a seed and a rule."""

    task: str
    seed: int
    rule: str
    success_source: str
    """Who said in training that an episode succeeded: model or simulator."""
    policy_digest: str
    """Digest of the policy that it starts from."""
    cloned_success: float
    """Success of the policy that it starts from."""
    refined_success: float
    """Success at its end."""
    success_curve: tuple[float, ...]
    """Success after every iteration; the last one stands for those that an early stop left out."""
    predicted_success: tuple[float | None, ...]
    """Share of the training episodes of every iteration that the model calls a success; None where none ended."""
    hover_rates: tuple[float | None, ...]
    """Share of these that end at the time limit, no success, with most of the way behind them by the model."""
    alarm_iterations: tuple[int, ...]
    """Iterations in which the monitor rang."""
    cumulative_episodes: tuple[int, ...]
    """Training episodes up to the end of every iteration."""
    seconds_by_phase: dict[str, float]
    """Stage of refinement -> time spent on it."""

    @classmethod
    def from_json(cls, payload: Mapping[str, Any]) -> CellResult:
        """The cell that `dataclasses.asdict` and JSON took apart."""
        kwargs: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in payload.items()}
        return cls(**kwargs)

    def rollouts_to_success(self, target_success: float) -> int | None:
        """Training episodes until success first reached `level`; None: never."""
        iteration = first_iteration_reaching(self.success_curve, target_success)
        return None if iteration is None else self.cumulative_episodes[iteration - 1]

    def success_after(self, episodes: int) -> float:
        """Success after the last iteration within that many training episodes; of what was cloned before the first."""
        rates = [
            rate
            for rate, num_episodes in zip(self.success_curve, self.cumulative_episodes, strict=True)
            if num_episodes <= episodes
        ]
        return rates[-1] if rates else self.cloned_success


def check_same_policy(reference: CellResult, rule: str, policy: str) -> None:
    """Raises `UserError` when the cell of a rule, of the task and seed of a known one, does not start from the same
    policy (its digest): another machine, or another version of the code, may clone another one."""
    if reference.policy_digest != policy:
        raise UserError(
            f"{reference.task}, seed {reference.seed}: {reference.rule} and {rule} started from different policies and are no "
            "pair: delete the line of one of them beside the page, and measure it anew"
        )


def ranking_agreement(cells: Sequence[CellResult]) -> float | None:
    """Kendall's tau_a of the policies that acted in all iterations of cells, ranked by the model and by the simulator;
    None for fewer than two that the model ranks.

    Only cells in which the model ends the episodes: the simulator ends them with the first moment of success, before
    the model has seen the several that it asks for.
    """
    pairs = [
        pair
        for cell in cells
        if cell.success_source == "model"
        for pair in _acting_policy_success(cell)
        if pair[0] is not None
    ]
    return kendall_tau_a(*zip(*pairs, strict=True)) if len(pairs) > 1 else None


def _acting_policy_success(cell: CellResult) -> Iterator[tuple[float | None, float]]:
    """Of the policy that acted in every iteration: what the model called a success, and what the simulator did, who
    watches after an iteration the policy that acts in the next."""
    return zip(cell.predicted_success, (cell.cloned_success, *cell.success_curve[:-1]), strict=True)


def pad_curve(curve: Sequence[float], length: int) -> list[float]:
    """A curve that stopped early, its last value held."""
    return [*curve, *[curve[-1]] * (length - len(curve))]


def success_band(cells: Sequence[CellResult]) -> tuple[list[float], list[float], list[float]]:
    """Mean, lower and upper bound of the curves of cells, from what was cloned on."""
    length = max(len(cell.success_curve) for cell in cells) + 1
    mean, low, high = mean_band([pad_curve((cell.cloned_success, *cell.success_curve), length) for cell in cells])
    return mean.tolist(), low.tolist(), high.tolist()


def summarize_cells(cells: Sequence[CellResult], target_success: float) -> dict[str, float | int | None]:
    """What is said of the cells of one rule. `rollouts` is the median over all of them, a seed that never reached
    `level` being the last; None unless more than half did."""
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
    """Stage -> its share of the time of all cells."""
    seconds_by_phase = {
        phase: sum(cell.seconds_by_phase[phase] for cell in cells) for phase in cells[0].seconds_by_phase
    }
    return {phase: seconds / sum(seconds_by_phase.values()) for phase, seconds in seconds_by_phase.items()}


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    """Of those that exist; None of none."""
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def rollout_ratio(
    cells: Sequence[CellResult], other: Sequence[CellResult], target_success: float
) -> tuple[float, float]:
    """Geometric mean over pairs of the rollouts that `cells` needed by those that `other` needed, and how likely it is
    that far below 1 by chance (`paired_permutation` of the logarithms).

    Who never reached the level is counted as if it had with its last episode, or with the one with which the other did,
    if that came later: it needed at least as many. Where neither did, none needed more.
    """
    log_rollouts = [_log_rollouts(cell, paired_cell, target_success) for cell, paired_cell in _pair_cells(cells, other)]
    own_logs, other_logs = zip(*log_rollouts, strict=True)
    return float(np.exp(np.mean(own_logs) - np.mean(other_logs))), paired_permutation(own_logs, other_logs)


def success_difference(cells: Sequence[CellResult], other: Sequence[CellResult]) -> tuple[float, float, float]:
    """By how much the success at the end is higher over pairs than that of `other`, and its 95 % interval."""
    pairs = _pair_cells(cells, other)
    return paired_difference(
        [cell.refined_success for cell, _ in pairs], [paired_cell.refined_success for _, paired_cell in pairs]
    )


def success_gain(cells: Sequence[CellResult]) -> tuple[float, float, float]:
    """By how much the success at the end is higher than that of what was cloned, and its 95 % interval."""
    return paired_difference([cell.refined_success for cell in cells], [cell.cloned_success for cell in cells])


def _pair_cells(cells: Sequence[CellResult], other: Sequence[CellResult]) -> list[tuple[CellResult, CellResult]]:
    """Those of both that have the same task and seed."""
    other_by_key = {(cell.task, cell.seed): cell for cell in other}
    return [(cell, other_by_key[cell.task, cell.seed]) for cell in cells if (cell.task, cell.seed) in other_by_key]


def _log_rollouts(cell: CellResult, paired_cell: CellResult, target_success: float) -> tuple[float, float]:
    """Logarithms of the rollouts that both needed; at least so many, of who never got there."""
    first, second = cell.rollouts_to_success(target_success), paired_cell.rollouts_to_success(target_success)
    if first is None and second is None:
        return 0.0, 0.0
    first = max(cell.cumulative_episodes[-1], second or 0) if first is None else first
    second = max(paired_cell.cumulative_episodes[-1], first) if second is None else second
    return float(np.log(max(1, first))), float(np.log(max(1, second)))


def filter_by_rule(cells: Sequence[CellResult], rule: str) -> list[CellResult]:
    """The cells of one rule."""
    return [cell for cell in cells if cell.rule == rule]


def group_by_task(cells: Sequence[CellResult]) -> dict[str, list[CellResult]]:
    """Task -> its cells, in the order in which tasks come."""
    return {task: [cell for cell in cells if cell.task == task] for task in dict.fromkeys(cell.task for cell in cells)}


def group_by_task_with_total(cells: Sequence[CellResult]) -> dict[str, list[CellResult]]:
    """The same, and "all" where there are several."""
    tasks = group_by_task(cells)
    return {**tasks, "all": list(cells)} if len(tasks) > 1 else tasks
