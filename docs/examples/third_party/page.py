"""Write the results of all finished runs as a page: python page.py runs/third_party docs/results/third_party.md"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from run import NUM_CLONED, NUM_DEMONSTRATIONS, NUM_EVAL_EPISODES, NUM_HELD_OUT

NAMES = {
    "so101": "SO-101, pick a cube (`lerobot-env-so101`)",
    "lift": "robosuite `Lift`",
    "door": "robosuite `Door`",
}
HEADER = f"""# SO-101, and Lift and Door of robosuite

`docs/examples/third_party`: a reward model from video, and policies that were refined on it. The world's own success
evaluates both. Each number is of one run.

## Reward model

The bundled model continues on 1 or {NUM_DEMONSTRATIONS} demonstrations. {NUM_HELD_OUT} held-out successes and
{NUM_HELD_OUT} failures are separated by the predicted success of the last frame. Recall and false positives are those
of the threshold 0.5.

| world | demonstrations | AUC of success | recall | false positives |
|---|---|---|---|---|
"""
REFINED = f"""
## Refined policies

Training sees the model's progress and success of {NUM_DEMONSTRATIONS} demonstrations, never the world's. Success of
{NUM_EVAL_EPISODES} episodes.

| world | demonstrations of the policy | seed | cloned | refined | difference |
|---|---|---|---|---|---|
"""


def load_result(path: Path) -> dict[str, Any]:
    """Return the content of a result file."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def model_rows(runs: Path) -> list[str]:
    """Return the rows of the reward models."""
    rows = []
    for world, name in NAMES.items():
        for number in (1, NUM_DEMONSTRATIONS):
            path = runs / world / f"model_{number}.json"
            if path.exists():
                values = load_result(path)
                numbers = " | ".join(f"{values[key]:.3f}" for key in ("success_auc", "recall", "false_positives"))
                rows.append(f"| {name} | {number} | {numbers} |")
    return rows


def policy_rows(runs: Path) -> list[str]:
    """Return the rows of the policies, with a mean per world."""
    rows = []
    for world, name in NAMES.items():
        results = {
            path.stem.removeprefix("seed_"): load_result(path) for path in sorted((runs / world).glob("seed_*.json"))
        }
        pairs = {
            seed: (values["cloned_success"]["rate"], values["refined_success"]["rate"])
            for seed, values in results.items()
        }
        if len(pairs) > 1:
            pairs["mean"] = (
                mean(cloned for cloned, _ in pairs.values()),
                mean(refined for _, refined in pairs.values()),
            )
        rows += [
            f"| {name} | {NUM_CLONED[world]} | {seed} | {cloned:.3f} | {refined:.3f} | {refined - cloned:+.3f} |"
            for seed, (cloned, refined) in pairs.items()
        ]
    return rows


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="output folder of run.py")
    parser.add_argument("page", type=Path, help="Markdown file")
    arguments = parser.parse_args()
    rows = [*model_rows(arguments.runs), REFINED.rstrip("\n"), *policy_rows(arguments.runs)]
    arguments.page.write_text(HEADER + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
