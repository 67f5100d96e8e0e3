"""Two users prefer different things, and a policy learns for each: python benchmarks/user_rewards.py

One user prefers short episodes, the other small actions. Each answers pairs of recorded episodes by that fact
(`embodied-rm prefer`), and a reward with a vector per user learns from both tables (`personalize`, VPL). Eight new
answers then describe each user, and a policy learns from that user's reward, without outcome and environment step
(`offline`). Each phase is a command with its own run folder; interrupted runs are resumed. Writes
docs/results/user_rewards.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cli_process import run_once

from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.report.markdown import markdown_table

TASK, SEEDS = "lift_cube", (1, 2, 3)
RESULTS_PAGE = Path("docs/results/user_rewards.md")
FACTORS = {"short episodes": "duration", "small actions": "effort"}
RECORD_ARGS = ("num_successes=80", "num_failures=0", "action_noise=0.1", "speed_range=[0.4,1.0]")
VIEW_ARGS = ("env.views=[front]", "env.image_size=32")  # recordings need a view; no learner here looks at it
NUM_PAIRS, NUM_ANSWERS = 1000, 8
LEARNER_ARGS = ("rule=raw", "success_reward=0", "steps=3000")
POLICY_COLUMNS = {"mean steps": ".1f", "success rate": ".3f"}
ACCURACIES = ("one reward for all", f"{NUM_ANSWERS} random answers", f"{NUM_ANSWERS} chosen answers")


def measure(folder: Path, seed: int) -> dict[str, dict[str, Any]]:
    """Return what was measured for each user on the recordings of a seed."""
    record = ["collect", f"tasks=[{TASK}]", *RECORD_ARGS, *VIEW_ARGS, f"seed={seed}"]
    data = run_once(folder / "data", record)
    tables = {factor: compare(folder / factor, data, factor, NUM_PAIRS, seed) for factor in FACTORS.values()}
    comparisons = ",".join(map(str, tables.values()))
    words = ["personalize", f"data={data}", f"comparisons=[{comparisons}]", f"num_answers={NUM_ANSWERS}"]
    reward = run_once(folder / "reward", [*words, f"seed={seed}"])
    accuracies = json.loads((reward / "metrics.json").read_text())["personalize"]
    results = {}
    for user, factor in FACTORS.items():
        answers = compare(folder / f"{factor}_answers", data, factor, NUM_ANSWERS, seed + 100)
        learn = ["offline", f"task={TASK}", f"data={data}", f"checkpoint={reward}", f"user_answers={answers}"]
        policy = run_once(folder / f"{factor}_policy", [*learn, *LEARNER_ARGS, f"seed={seed}"])
        learned = json.loads((policy / "metrics.json").read_text())["offline_success"]
        results[user] = {
            **accuracies[factor],
            "mean steps": learned["mean_steps"],
            "success rate": learned["rate"],
        }
    return results


def compare(folder: Path, data: Path, factor: str, num_pairs: int, seed: int) -> Path:
    """Return the run folder of the answers of a user who decides by one factor."""
    words = ["prefer", f"data={data}", "clip_share=1", f"factors=[{factor}]", f"num_pairs={num_pairs}", f"seed={seed}"]
    return run_once(folder, words)


def results_page(results: Sequence[dict[str, dict[str, Any]]]) -> str:
    """Return the results as Markdown."""
    accuracy_rows = [
        (user, *(f"{np.mean([result[user][f'{name}, accuracy'] for result in results]):.3f}" for name in ACCURACIES))
        for user in FACTORS
    ]
    policy_rows = [
        (str(seed), *(f"{result[user][key]:{form}}" for user in FACTORS for key, form in POLICY_COLUMNS.items()))
        for seed, result in zip(SEEDS, results, strict=True)
    ]
    header = ("seed", *(f"{user}: {key}" for user in FACTORS for key in POLICY_COLUMNS))
    return "\n".join(
        [
            "# Rewards of users",
            "",
            f"`python benchmarks/user_rewards.py`, `{TASK}`, {len(SEEDS)} seeds of 80 recorded successes at 0.4 to 1 "
            f"of full speed. One user prefers short episodes, the other small actions; each answers {NUM_PAIRS} pairs. "
            f"Machine: {describe_machine()}.",
            "",
            "Share of right predictions about pairs of unseen episodes, mean over the seeds:",
            "",
            *markdown_table(("user", *ACCURACIES), accuracy_rows),
            "",
            f"Policies from the reward of a user, whom {NUM_ANSWERS} answers describe (`embodied-rm offline "
            "user_answers=`). No outcome and no environment step is used. Evaluated over 200 episodes; a failure "
            "counts with its time limit.",
            "",
            *markdown_table(header, policy_rows),
            "",
        ]
    )


def main() -> None:
    """Measure every seed, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/user_rewards"), help="folder of the runs")
    parser.add_argument("--page", type=Path, default=RESULTS_PAGE, help="results page")
    arguments = parser.parse_args()
    results = [measure(arguments.out / f"seed_{seed}", seed) for seed in SEEDS]
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    arguments.page.write_text(results_page(results))


if __name__ == "__main__":
    main()
