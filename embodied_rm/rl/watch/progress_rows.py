"""What an iteration of refinement leaves in `progress.jsonl`: a row each, as data and as one line of text."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from embodied_rm.rl.envs.loop_stats import LoopStats
from embodied_rm.rl.learner.ppo import UpdateStats
from embodied_rm.rl.watch.crosscheck import Checked
from embodied_rm.rl.watch.judge import Verdict

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows of a `progress.jsonl`, one an iteration."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def watched(verdict: Verdict | None) -> Row:
    """What the simulator says of the policy now, for a row of `progress.jsonl`."""
    if verdict is None:
        return {"watched": 0, "watched_successes": 0, "watched_success": None}
    return {"watched": verdict.episodes, "watched_successes": verdict.successes, "watched_success": verdict.rate}


def checked(found: Checked | None) -> Row:
    """In how many of the episodes beside the training the model saw a success, and in how many it alone."""
    found = found or Checked(episodes=0, claims=0, unfounded=0)
    return {"checked": found.episodes, "claims": found.claims, "unfounded": found.unfounded}


def share(part: float, whole: int) -> float | None:
    """A rate, or a mean; of nothing, none."""
    return part / whole if whole else None


def summarise(iteration: int, stats: LoopStats, update: UpdateStats) -> Row:
    """One row of `progress.jsonl`."""
    return {
        "iteration": iteration,
        "env_steps": stats.steps,
        "episodes": stats.episodes,
        "faults": stats.faults,
        "success": share(stats.successes, stats.episodes),
        "learned_successes": stats.learned_successes,
        "learned_success": share(stats.learned_successes, stats.episodes),
        "simulator_success": share(stats.simulator_successes, stats.episodes),
        "hover_rate": share(stats.hovers, stats.episodes),
        "height": share(stats.height, stats.episodes),
        "shaped_return": share(stats.shaped_return, stats.episodes),
        "scored": stats.scored,
        "invalid_rate": share(stats.invalid, stats.scored),
        "verdict_rate": share(stats.verdicts, stats.scored - stats.invalid),
        "spread": share(stats.spread, stats.scored - stats.invalid),
        "ood_rate": share(stats.unusual, stats.known),
        **asdict(update),
        "dead_views": stats.dead_views,
        "seconds": stats.seconds,
    }


def as_curves(row: Row) -> Row:
    """A row as curves draw it, which know no words: whether there was an alarm, not which."""
    return {**row, "alarm": row["alarm"] is not None}


def describe(row: Row) -> str:
    """One line about one iteration."""

    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    return (
        f"iteration {row['iteration']:3d}: success {shown(row['success'])} of {row['episodes']} training episodes, "
        f"{shown(row['watched_success'])} of {row['watched']} watched by the simulator; "
        f"return {shown(row['shaped_return'])}; KL {row['kl']:.4f}, from the imitated policy {row['reference_kl']:.3f}"
        + ("" if row["alarm"] is None else f"\nALARM: {row['alarm']}")
    )
