"""A training killed at random moments, against one that nobody disturbed: python benchmarks/kill_training.py

Records a few episodes, then starts `embodied-rm train`, kills it (SIGKILL) and starts it again with resume=true until
it has been killed `--kills` times, and lets it finish. Writes docs/results/kill_training.md.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from killing import read_manifest_count, run_with_kills

from embodied_rm.checkpoint_io import load_tensors
from embodied_rm.models.checkpoint import ARCHITECTURE
from embodied_rm.train import CHECKPOINT_DIR, TRAIN_STATE_DIR

NUM_STEPS = 600
CLI_COMMAND = [sys.executable, "-m", "embodied_rm"]


def record_episodes(folder: Path) -> Path:
    """Successes and failures of a simulated task."""
    settings = ["tasks=[lift_cube]", "successes=6", "failures=6", f"out={folder}"]
    subprocess.run([*CLI_COMMAND, "collect", *settings], check=True, stdout=subprocess.DEVNULL)
    return folder


def train_command(data: Path, out: Path) -> list[str]:
    """The run: its state is stored every quarter of a second."""
    settings = ["batch=4", "moments=4", "augment.shift=0.06", "checkpoint_seconds=0.25"]
    return [*CLI_COMMAND, "train", f"data={data}", f"out={out}", "resume=true", f"updates={NUM_STEPS}", *settings]


def report(steps_at_kill: list[int], identical: bool) -> str:
    """The page for docs/results."""
    return "\n".join(
        [
            "# Training killed and resumed",
            "",
            f"`embodied-rm train`, {NUM_STEPS} updates on 12 episodes of `lift_cube`, killed {len(steps_at_kill)} times "
            f"(SIGKILL) at random moments, resumed each time, against an undisturbed run: the weights at the end are "
            f"{'the same to the last bit' if identical else '**different**'}. Updates stored at each death: "
            f"{', '.join(map(str, steps_at_kill))}.",
            "",
            f"    python benchmarks/kill_training.py --kills {len(steps_at_kill)}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="how often the run is killed")
    parser.add_argument("--longest", type=float, default=1.5, help="most seconds that a kill waits")
    parser.add_argument("--out", type=Path, default=Path("docs/results/kill_training.md"), help="the page")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data, interrupted_dir = record_episodes(root / "data"), root / "parts"
        steps_at_kill = run_with_kills(
            train_command(data, interrupted_dir),
            lambda: read_manifest_count(interrupted_dir / TRAIN_STATE_DIR, "updates"),
            args.kills,
            args.longest,
        )
        for name in ("parts", "whole"):
            subprocess.run(train_command(data, root / name), check=True, stdout=subprocess.DEVNULL)
        weights = [load_tensors(root / name / CHECKPOINT_DIR, ARCHITECTURE)[0] for name in ("parts", "whole")]
    identical = all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    args.out.write_text(report(steps_at_kill, identical))
    if not identical:
        raise SystemExit("the resumed run differs from the undisturbed one")


if __name__ == "__main__":
    main()
