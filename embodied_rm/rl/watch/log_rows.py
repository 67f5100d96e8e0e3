"""Rows of `progress.jsonl`, one per iteration of a refinement, and their line of text."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from embodied_rm.errors import DataError
from embodied_rm.rl.envs.rollout_stats import RolloutStats
from embodied_rm.rl.learner.ppo import UpdateStats
from embodied_rm.rl.off_policy.rlpd import RLPDStats
from embodied_rm.rl.watch.crosscheck import CrosscheckResult
from embodied_rm.rl.watch.evaluate_policy import EvalResult
from embodied_rm.text_file import parse_json_lines

LogRow = dict[str, Any]


def read_rows(path: Path) -> list[LogRow]:
    """Read the rows of a `progress.jsonl`, one per iteration; `DataError` if it holds something else."""
    rows = parse_json_lines(path)
    if any(not isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: a JSON object was expected in each line")
    return rows


def training_success(rows: list[LogRow]) -> tuple[float, float]:
    """Return the shares of training episodes that are a success of the model, and of the simulator until they end."""
    episodes = sum(row["episodes"] for row in rows)
    simulated = sum((row["simulator_success"] or 0.0) * row["episodes"] for row in rows)
    return sum(row["predicted_successes"] for row in rows) / episodes, simulated / episodes


def eval_columns(result: EvalResult | None) -> LogRow:
    """Return the columns of an evaluation by the simulator."""
    episodes, successes, rate = (0, 0, None) if result is None else (result.episodes, result.successes, result.rate)
    return {"eval_episodes": episodes, "eval_successes": successes, "eval_success_rate": rate}


def crosscheck_columns(result: CrosscheckResult | None) -> LogRow:
    """Return the columns of a verification: successes according to the model, and false ones among them."""
    result = result or CrosscheckResult(episodes=0, claimed_successes=0, false_claims=0)
    claims = {"claimed_successes": result.claimed_successes, "false_claims": result.false_claims}
    return {"verification_episodes": result.episodes, **claims}


def ratio(numerator: float, denominator: int) -> float | None:
    """Return numerator / denominator; None if the denominator is 0."""
    return numerator / denominator if denominator else None


def summarize_iteration(iteration: int, stats: RolloutStats, update: UpdateStats | RLPDStats) -> LogRow:
    """Return the row of an iteration, without evaluation."""
    return {
        "iteration": iteration,
        "env_steps": stats.env_steps,
        "start_steps": stats.start_steps,
        "episodes": stats.episodes,
        "helped_episodes": stats.helped_episodes,
        "returned_episodes": stats.returned_episodes,
        "diverged_episodes": stats.diverged_episodes,
        "success": ratio(stats.successes, stats.episodes),
        "predicted_successes": stats.predicted_successes,
        "predicted_success": ratio(stats.predicted_successes, stats.episodes),
        "simulator_success": ratio(stats.simulator_successes, stats.episodes),
        "hover_rate": ratio(stats.hover_episodes, stats.episodes),
        "final_potential": ratio(stats.final_potential, stats.episodes),
        "shaped_return": ratio(stats.shaped_return, stats.episodes),
        "num_scores": stats.num_scores,
        "invalid_rate": ratio(stats.invalid_scores, stats.num_scores),
        "predicted_success_rate": ratio(stats.positive_scores, stats.num_scores - stats.invalid_scores),
        "uncertainty": ratio(stats.uncertainty, stats.num_scores - stats.invalid_scores),
        "ood_rate": ratio(stats.ood_frames, stats.ood_scored),
        **asdict(update),
        "dead_views": stats.dead_views,
        "seconds": stats.seconds,
    }


def training_episodes(row: LogRow) -> int:
    """Return the episodes of an iteration, wherever they began."""
    return int(row["episodes"] + row.get("returned_episodes", 0))


def to_scalars(row: LogRow) -> LogRow:
    """Return the row with numbers only, for curves: `alarm` becomes a boolean."""
    return {**row, "alarm": row["alarm"] is not None}


def format_row(row: LogRow) -> str:
    """Return a line of text about an iteration."""

    def fmt(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    return (
        f"iteration {row['iteration']:3d}: success {fmt(row['success'])} of {row['episodes']} training episodes, "
        f"{fmt(row['eval_success_rate'])} of {row['eval_episodes']} evaluation episodes; "
        f"return {fmt(row['shaped_return'])}; KL {row['kl']:.4f}, from the imitated policy {row['bc_kl']:.3f}"
        + ("" if row["alarm"] is None else f"\nALARM: {row['alarm']}")
    )
