"""What commands found, as parts of a report and of metrics.json."""

from __future__ import annotations

from typing import Any

from embodied_rm.report import Curve, Rate, SuccessRow
from embodied_rm.rl.judge import Verdict
from embodied_rm.rl.refine import Refined


def rate(verdict: Verdict) -> Rate:
    """A verdict for the page."""
    low, high = verdict.interval
    return Rate(value=verdict.rate, low=low, high=high, episodes=verdict.episodes)


def success_row(task: str, refined: Refined) -> SuccessRow:
    """Success before and after refinement."""
    return SuccessRow(task=task, rates={"cloned": rate(refined.cloned), "refined": rate(refined.refined)})


def learning_curves(task: str, refined: Refined) -> tuple[Curve, Curve]:
    """Success and return over the iterations of a refinement."""

    def column(name: str) -> list[float | None]:
        return [row[name] for row in refined.rows]

    success = {"by the model's verdict": column("learned_success"), "by the simulator": column("simulator_success")}
    return (
        Curve(title=f"{task}: success of training episodes", x_label="iteration", lines=success),
        Curve(
            title=f"{task}: shaped return", x_label="iteration", lines={"mean of an episode": column("shaped_return")}
        ),
    )


def task_metrics(refined: Refined) -> dict[str, Any]:
    """What metrics.json says of one refined policy; success is the simulator's verdict over `episodes` episodes."""
    rows = refined.rows
    return {
        "cloned_success": refined.cloned.rate,
        "cloned_interval": list(refined.cloned.interval),
        "refined_success": refined.refined.rate,
        "refined_interval": list(refined.refined.interval),
        "iterations": len(rows),
        "episodes": refined.refined.episodes,
        "training_episodes": sum(row["episodes"] for row in rows),
        "env_steps": sum(row["env_steps"] for row in rows),
        "faults": sum(row["faults"] for row in rows),
        "seconds": {stage: sum(row["seconds"][stage] for row in rows) for stage in rows[0]["seconds"]},
    }
