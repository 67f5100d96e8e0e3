"""Adapt the model in the box to every task that was recorded, and compare it with episodes that it has not seen.

    python measure.py runs/metaworld --page docs/results/metaworld.md

Runs where embodied-rm is installed. What is there already is not done again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dataset import write

BOX = Path(__file__).parents[3] / "assets" / "checkpoints" / "tabletop"
UPDATES = 1000
LEARN = (f"start={BOX}", f"updates={UPDATES}", "batch=8", "learning_rate=1e-3", "augment.drop_view=0.2")
WAYS = {
    "no demonstration": None,
    "1 demonstration": ("adapt", "demos_20", "max_seconds=null", "augment.shift=0.06", "augment.zoom=0.06"),
    "5 demonstrations": ("train", "demos_5"),
    "20 demonstrations": ("train", "demos_20"),
    "20 demonstrations, 40 failures": ("train", "both"),
    "20 demonstrations, 40 failures, attempts": ("train", "tried"),
    "20 demonstrations, 40 failures, attempts twice": ("train", "tried_twice"),
}
DATA: dict[str, tuple[Sequence[str], int | None]] = {
    "demos_5": (("demos",), 5),
    "demos_20": (("demos",), 20),
    "both": (("demos", "mistakes"), None),
    "tried": (("demos", "mistakes", "attempts"), None),
    "tried_twice": (("demos", "mistakes", "attempts", "attempts_2"), None),
    "unseen": (("held_out",), None),
}
"""Folders of recordings, and how many of each."""
COLUMNS = {"voc": "VOC", "voc_reversed": "reversed", "success_auc": "AUC", "mae": "MAE", "verdict_recall": "recall"}


def dataset(task: Path, name: str) -> Path:
    """Recordings of a task as a dataset, which is made unless it is there."""
    folders, most = DATA[name]
    out = task / "data" / name
    if not out.exists():
        write([task / folder for folder in folders], out, task / "demos", most)
    return out


def missing(task: Path, way: str) -> list[str]:
    """The recordings of a task that a way needs and that are not there."""
    taught = WAYS[way]
    folders = () if taught is None else DATA[taught[1]][0]
    return [folder for folder in (*folders, "held_out") if not (task / folder).exists()]


def run(command: str, out: Path, *settings: str) -> dict[str, float]:
    """The metrics of a command, which is run unless it has been."""
    if not (out / "metrics.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "embodied_rm", command, f"out={out}", *settings], check=True)
    metrics: dict[str, dict[str, float]] = json.loads((out / "metrics.json").read_text())
    return metrics.get("reward_model", {})


def measured(task: Path, way: str) -> dict[str, float]:
    """What a model that has been taught in one of the ways says of the task's unseen episodes."""
    name, taught = way.replace(" ", "_").replace(",", ""), WAYS[way]
    checkpoint = BOX
    if taught is not None:
        command, data, *settings = taught
        checkpoint = task / name
        run(command, checkpoint, f"data={dataset(task, data)}", *LEARN, *settings)
    return run("evaluate", task / f"{name}_judged", f"data={dataset(task, 'unseen')}", f"checkpoint={checkpoint}")


def mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of the tasks that have a number in the column."""
    known = {key: [row[key] for row in rows if row.get(key) is not None] for key in COLUMNS}
    return {key: sum(values) / len(values) for key, values in known.items() if values}


def table(rows: dict[tuple[str, str], dict[str, float]]) -> str:
    """As Markdown, and the mean of every way."""
    ways = [way for way in WAYS if any(way == other for _, other in rows)]
    means = {("mean", way): mean([row for (_, other), row in rows.items() if way == other]) for way in ways}
    lines = ["| task | way | " + " | ".join(COLUMNS.values()) + " |", "|---" * (2 + len(COLUMNS)) + "|"]
    for (task, way), numbers in (rows | means).items():
        said = [f"{numbers[key]:.3f}" if numbers.get(key) is not None else "-" for key in COLUMNS]
        lines.append(f"| {task} | {way} | " + " | ".join(said) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what record.py wrote, a folder a task")
    parser.add_argument("--page", type=Path, required=True, help="Markdown file for the table")
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="all by default")
    args = parser.parse_args()
    rows = {}
    tasks = sorted(path for path in args.folder.iterdir() if (path / "held_out").exists())
    for way in args.ways or WAYS:
        for task in tasks:
            if unrecorded := missing(task, way):
                print(f"{task.name}: {way}: left out, as {', '.join(unrecorded)} was not recorded")
                continue
            rows[task.name, way] = measured(task, way)
            args.page.write_text(table(rows))


if __name__ == "__main__":
    main()
