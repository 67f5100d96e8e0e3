"""Metrics and report parts of a refinement."""

from collections.abc import Mapping, Sequence
from typing import Any

from embodied_rm.report import LineChart, SuccessRate, TaskSuccess
from embodied_rm.rl.refine import RefineResult
from embodied_rm.rl.watch.log_rows import ratio, training_episodes


def refinement_metrics(refined: RefineResult) -> dict[str, Any]:
    """Return the metrics of one refined policy; success is that of the simulator over `episodes` episodes."""
    rows, cloned_eval, refined_eval = refined.log_rows, refined.cloned_eval, refined.refined_eval
    assert cloned_eval is not None and refined_eval is not None, "the command evaluates before and after"
    return {
        "cloned_success": cloned_eval.rate,
        "cloned_interval": list(cloned_eval.interval),
        "refined_success": refined_eval.rate,
        "refined_interval": list(refined_eval.interval),
        "iterations": len(rows),
        "episodes": refined_eval.episodes,
        "training_episodes": sum(map(training_episodes, rows)),
        "env_steps": sum(row["env_steps"] for row in rows),
        "diverged_episodes": sum(row["diverged_episodes"] for row in rows),
        "alarms": [row["iteration"] for row in rows if row["alarm"] is not None],
        "seconds": {phase: sum(row["seconds"][phase] for row in rows) for phase in rows[0]["seconds"]},
    }


def success_row(task: str, metrics: Mapping[str, Any]) -> TaskSuccess:
    """Return the success before and after refinement, from `refinement_metrics`."""

    def rate(name: str) -> SuccessRate:
        low, high = metrics[f"{name}_interval"]
        return SuccessRate(value=metrics[f"{name}_success"], low=low, high=high, episodes=metrics["episodes"])

    return TaskSuccess(task=task, rates={"cloned": rate("cloned"), "refined": rate("refined")})


def learning_curves(task: str, rows: Sequence[Mapping[str, Any]]) -> tuple[LineChart, ...]:
    """Return charts of success, return and uncertainty per iteration, from the rows of `progress.jsonl`."""

    def column(name: str) -> list[float | None]:
        return [row[name] for row in rows]

    success = {
        "training episodes, by the success source": column("success"),
        "training episodes, predicted by the model": column("predicted_success"),
        "evaluation episodes, by the simulator": column("eval_success_rate"),
        "verification episodes, false claims of the model": [
            ratio(row["false_claims"], row["verification_episodes"]) for row in rows
        ],
    }
    if any(row["alarm"] for row in rows):
        success["alarm"] = [float(row["alarm"] is not None) for row in rows]
    return (
        LineChart(title=f"{task}: success", x_label="iteration", series=success, y_max=1.0),
        LineChart(title=f"{task}: shaped return", x_label="iteration", series={"mean": column("shaped_return")}),
        LineChart(
            title=f"{task}: frames that the model scored",
            x_label="iteration",
            series={"mean uncertainty": column("uncertainty"), "out of distribution": column("ood_rate")},
            y_max=0.2,
        ),
    )
