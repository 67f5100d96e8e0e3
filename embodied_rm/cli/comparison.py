"""Reward rules side by side, from the learning curves of paired refinements (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.metrics import kendall_tau_a, mean_band, paired_difference, paired_permutation, reached


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One refinement: a task, a seed and a rule."""

    task: str
    seed: int
    rule: str
    success: str
    """Who said in training that an episode succeeded: model or simulator."""
    policy: str
    """Digest of the policy that it starts from."""
    cloned: float
    """Success of the policy that it starts from."""
    refined: float
    """Success at its end."""
    curve: tuple[float, ...]
    """Success after every iteration; the last one stands for those that an early stop left out."""
    learned: tuple[float | None, ...]
    """Share of the training episodes of every iteration that the model calls a success; None where none ended."""
    hovers: tuple[float | None, ...]
    """Share of these that end at the time limit, no success, with most of the way behind them by the model."""
    alarms: tuple[int, ...]
    """Iterations in which the monitor rang."""
    episodes: tuple[int, ...]
    """Training episodes up to the end of every iteration."""
    seconds: dict[str, float]
    """Stage of refinement -> time spent on it."""

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Cell:
        """The cell that `dataclasses.asdict` and JSON took apart."""
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in told.items()}
        return cls(**fields)

    def rollouts_to(self, level: float) -> int | None:
        """Training episodes until success first reached `level`; None: never."""
        iteration = reached(self.curve, level)
        return None if iteration is None else self.episodes[iteration - 1]

    def success_after(self, episodes: int) -> float:
        """Success after the last iteration within that many training episodes; of what was cloned before the first."""
        within = [rate for rate, spent in zip(self.curve, self.episodes, strict=True) if spent <= episodes]
        return within[-1] if within else self.cloned


def refuse_stranger(known: Cell, rule: str, policy: str) -> None:
    """Raises `UserError` when the cell of a rule, of the task and seed of a known one, does not start from the same
    policy (its digest): another machine, or another version of the code, may clone another one."""
    if known.policy != policy:
        raise UserError(
            f"{known.task}, seed {known.seed}: {known.rule} and {rule} started from different policies and are no "
            "pair: delete the line of one of them beside the page, and measure it anew"
        )


def agreement(cells: Sequence[Cell]) -> float | None:
    """Kendall's tau_a of the policies that acted in all iterations of cells, ranked by the model and by the simulator;
    None for fewer than two that the model ranks.

    Only cells in which the model ends the episodes: the simulator ends them with the first moment of success, before
    the model has seen the several that it asks for.
    """
    ranked = [pair for cell in cells if cell.success == "model" for pair in _acted(cell) if pair[0] is not None]
    return kendall_tau_a(*zip(*ranked, strict=True)) if len(ranked) > 1 else None


def _acted(cell: Cell) -> Iterator[tuple[float | None, float]]:
    """Of the policy that acted in every iteration: what the model called a success, and what the simulator did, who
    watches after an iteration the policy that acts in the next."""
    return zip(cell.learned, (cell.cloned, *cell.curve[:-1]), strict=True)


def lengthened(cell_curve: Sequence[float], length: int) -> list[float]:
    """A curve that stopped early, its last value held."""
    return [*cell_curve, *[cell_curve[-1]] * (length - len(cell_curve))]


def band_of(cells: Sequence[Cell]) -> tuple[list[float], list[float], list[float]]:
    """Mean, lower and upper bound of the curves of cells, from what was cloned on."""
    length = max(len(cell.curve) for cell in cells) + 1
    mean, low, high = mean_band([lengthened((cell.cloned, *cell.curve), length) for cell in cells])
    return mean.tolist(), low.tolist(), high.tolist()


def summary(cells: Sequence[Cell], level: float) -> dict[str, float | int | None]:
    """What is said of the cells of one rule. `rollouts` is the median over all of them, a seed that never reached
    `level` being the last; None unless more than half did."""
    needed = [cell.rollouts_to(level) for cell in cells]
    median = float(np.median([np.inf if n is None else n for n in needed]))
    refined = [cell.refined for cell in cells]
    return {
        "seeds": len(cells),
        "cloned": float(np.mean([cell.cloned for cell in cells])),
        "refined": float(np.mean(refined)),
        "worst": min(refined),
        "reached": sum(n is not None for n in needed),
        "rollouts": median if np.isfinite(median) else None,
        "after_150": float(np.mean([cell.success_after(150) for cell in cells])),
        "agreement": agreement(cells),
        "hovers": _mean([cell.hovers[-1] for cell in cells]),
        "alarms": sum(bool(cell.alarms) for cell in cells),
        "seconds": float(np.mean([sum(cell.seconds.values()) for cell in cells])),
    }


def stages(cells: Sequence[Cell]) -> dict[str, float]:
    """Stage -> its share of the time of all cells."""
    spent = {stage: sum(cell.seconds[stage] for cell in cells) for stage in cells[0].seconds}
    return {stage: seconds / sum(spent.values()) for stage, seconds in spent.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    """Of those that exist; None of none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def ratio(cells: Sequence[Cell], other: Sequence[Cell], level: float) -> tuple[float, float]:
    """Geometric mean over pairs of the rollouts that `cells` needed by those that `other` needed, and how likely it is
    that far below 1 by chance (`paired_permutation` of the logarithms).

    Who never reached the level is counted as if it had with its last episode, or with the one with which the other did,
    if that came later: it needed at least as many. Where neither did, none needed more.
    """
    efforts = [_efforts(one, another, level) for one, another in _pairs(cells, other)]
    mine, theirs = zip(*efforts, strict=True)
    return float(np.exp(np.mean(mine) - np.mean(theirs))), paired_permutation(mine, theirs)


def difference(cells: Sequence[Cell], other: Sequence[Cell]) -> tuple[float, float, float]:
    """By how much the success at the end is higher over pairs than that of `other`, and its 95 % interval."""
    pairs = _pairs(cells, other)
    return paired_difference([one.refined for one, _ in pairs], [another.refined for _, another in pairs])


def gain(cells: Sequence[Cell]) -> tuple[float, float, float]:
    """By how much the success at the end is higher than that of what was cloned, and its 95 % interval."""
    return paired_difference([cell.refined for cell in cells], [cell.cloned for cell in cells])


def _pairs(cells: Sequence[Cell], other: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Those of both that have the same task and seed."""
    theirs = {(cell.task, cell.seed): cell for cell in other}
    return [(cell, theirs[cell.task, cell.seed]) for cell in cells if (cell.task, cell.seed) in theirs]


def _efforts(one: Cell, another: Cell, level: float) -> tuple[float, float]:
    """Logarithms of the rollouts that both needed; at least so many, of who never got there."""
    first, second = one.rollouts_to(level), another.rollouts_to(level)
    if first is None and second is None:
        return 0.0, 0.0
    first = max(one.episodes[-1], second or 0) if first is None else first
    second = max(another.episodes[-1], first) if second is None else second
    return float(np.log(max(1, first))), float(np.log(max(1, second)))


def of_rule(cells: Sequence[Cell], rule: str) -> list[Cell]:
    """The cells of one rule."""
    return [cell for cell in cells if cell.rule == rule]


def by_task(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Task -> its cells, in the order in which tasks come."""
    return {task: [cell for cell in cells if cell.task == task] for task in dict.fromkeys(cell.task for cell in cells)}


def by_task_and_all(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The same, and "all" where there are several."""
    tasks = by_task(cells)
    return {**tasks, "all": list(cells)} if len(tasks) > 1 else tasks
