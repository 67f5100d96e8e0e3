"""Adapt the bundled model to every recorded task and evaluate it on held-out episodes.

    python evaluate_training_sets.py runs/metaworld --page docs/results/metaworld.md

Runs in the Python environment of embodied-rm. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from convert import write_dataset

BUNDLED_CHECKPOINT = Path(__file__).parents[3] / "assets" / "checkpoints" / "tabletop"
NUM_STEPS = 1000
TRAIN_SETTINGS = (
    f"init_from={BUNDLED_CHECKPOINT}",
    f"steps={NUM_STEPS}",
    "batch_size=8",
    "learning_rate=1e-3",
    "augment.view_dropout_prob=0.2",
)
TRAINING_SETUPS = {
    "no demonstration": None,
    "1 demonstration": ("adapt", "demos_20", "augment.shift=0.06", "augment.zoom=0.06"),
    "5 demonstrations": ("train", "demos_5"),
    "20 demonstrations": ("train", "demos_20"),
    "20 demonstrations, 40 failures": ("train", "demos_failures"),
    "20 demonstrations, 40 failures, attempts": ("train", "with_attempts"),
    "20 demonstrations, 40 failures, attempts twice": ("train", "with_attempts_twice"),
}
TRAINING_SETS: dict[str, tuple[Sequence[str], int | None]] = {
    "demos_5": (("demos",), 5),
    "demos_20": (("demos",), 20),
    "demos_failures": (("demos", "failures"), None),
    "with_attempts": (("demos", "failures", "attempts"), None),
    "with_attempts_twice": (("demos", "failures", "attempts", "attempts_2"), None),
    "unseen": (("held_out",), None),
}
"""Folders of recordings, and the maximum number of episodes of each."""
METRIC_COLUMNS = {
    "voc": "VOC",
    "voc_reversed": "reversed",
    "success_auc": "AUC",
    "mae": "MAE",
    "success_recall": "recall",
}


def make_dataset(task: Path, name: str) -> Path:
    """Convert recordings of a task to a dataset unless it exists; return its folder."""
    folders, max_episodes = TRAINING_SETS[name]
    out = task / "data" / name
    if not out.exists():
        write_dataset([task / folder for folder in folders], out, task / "demos", max_episodes)
    return out


def missing_recordings(task: Path, setup: str) -> list[str]:
    """Return the missing recordings of a task for a training setup."""
    training = TRAINING_SETUPS[setup]
    folders = () if training is None else TRAINING_SETS[training[1]][0]
    return [folder for folder in (*folders, "held_out") if not (task / folder).exists()]


def run_command(command: str, out: Path, *settings: str) -> dict[str, float]:
    """Run a command unless it is finished; return its metrics."""
    if not (out / "metrics.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "embodied_rm", command, f"out={out}", *settings], check=True)
    metrics: dict[str, dict[str, float]] = json.loads((out / "metrics.json").read_text())
    return metrics.get("reward_model", {})


def evaluate_setup(task: Path, setup: str) -> dict[str, float]:
    """Train a model in one of the setups and return its metrics on the task's held-out episodes."""
    name, training = setup.replace(" ", "_").replace(",", ""), TRAINING_SETUPS[setup]
    checkpoint = BUNDLED_CHECKPOINT
    if training is not None:
        command, data, *settings = training
        checkpoint = task / name
        run_command(command, checkpoint, f"data={make_dataset(task, data)}", *TRAIN_SETTINGS, *settings)
    return run_command(
        "evaluate", task / f"{name}_evaluation", f"data={make_dataset(task, 'unseen')}", f"checkpoint={checkpoint}"
    )


def mean_metrics(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the tasks that have it."""
    values_by_metric = {key: [row[key] for row in rows if row.get(key) is not None] for key in METRIC_COLUMNS}
    return {key: sum(values) / len(values) for key, values in values_by_metric.items() if values}


def results_table(rows: dict[tuple[str, str], dict[str, float]]) -> str:
    """Return the metrics and the mean of every setup as a Markdown table."""
    setups = [setup for setup in TRAINING_SETUPS if any(setup == row_setup for _, row_setup in rows)]
    means = {
        ("mean", setup): mean_metrics([row for (_, row_setup), row in rows.items() if setup == row_setup])
        for setup in setups
    }
    lines = [
        "| task | training data | " + " | ".join(METRIC_COLUMNS.values()) + " |",
        "|---" * (2 + len(METRIC_COLUMNS)) + "|",
    ]
    for (task, setup), metrics in (rows | means).items():
        cells = [f"{metrics[key]:.3f}" if metrics.get(key) is not None else "-" for key in METRIC_COLUMNS]
        lines.append(f"| {task} | {setup} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="output of record.py, one folder per task")
    parser.add_argument("--page", type=Path, required=True, help="Markdown file for the table")
    parser.add_argument("--setups", nargs="+", choices=TRAINING_SETUPS, help="all by default")
    args = parser.parse_args()
    rows = {}
    tasks = sorted(path for path in args.folder.iterdir() if (path / "held_out").exists())
    for setup in args.setups or TRAINING_SETUPS:
        for task in tasks:
            if unrecorded := missing_recordings(task, setup):
                print(f"{task.name}: {setup}: skipped, because {', '.join(unrecorded)} was not recorded")
                continue
            rows[task.name, setup] = evaluate_setup(task, setup)
            args.page.write_text(results_table(rows))


if __name__ == "__main__":
    main()
