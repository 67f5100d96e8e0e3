"""Reward model training with random kills against an uninterrupted run: python benchmarks/kill_reward_training.py

Records a few episodes, then starts `embodied-rm train`, kills it (SIGKILL) and resumes it until it was killed `--kills`
times, and lets it finish. Writes docs/results/kill_reward_training.md.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from cli_process import CLI_COMMAND
from kill_and_restart import compare_with_uninterrupted_run, read_manifest_count, run_with_kills

from embodied_rm.models.checkpoint import ARCHITECTURE
from embodied_rm.training import CHECKPOINT_DIR, TRAIN_STATE_DIR

NUM_STEPS = 600


def record_episodes(folder: Path) -> Path:
    """Record successes and failures of a simulated task."""
    settings = ["tasks=[lift_cube]", "num_successes=6", "num_failures=6", f"out={folder}"]
    subprocess.run([*CLI_COMMAND, "collect", *settings], check=True, stdout=subprocess.DEVNULL)
    return folder


def train_command(data: Path, out: Path) -> list[str]:
    """Return the command of a run that stores its state every quarter of a second."""
    settings = ["batch_size=4", "frames_per_episode=4", "augment.shift=0.06", "checkpoint_seconds=0.25"]
    return [*CLI_COMMAND, "train", f"data={data}", f"out={out}", "resume=true", f"steps={NUM_STEPS}", *settings]


def report(steps_at_kill: list[int], identical: bool) -> str:
    """Return the page for docs/results."""
    return "\n".join(
        [
            "# Reward model training, killed and resumed",
            "",
            f"`embodied-rm train`, {NUM_STEPS} steps on 12 episodes of `lift_cube`, killed {len(steps_at_kill)} times "
            f"(SIGKILL) at random times and resumed each time, against an uninterrupted run. The final weights are "
            f"{'bit-identical' if identical else '**different**'}. Stored steps at each kill: "
            f"{', '.join(map(str, steps_at_kill))}.",
            "",
            f"    python benchmarks/kill_reward_training.py --kills {len(steps_at_kill)}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="number of kills")
    parser.add_argument("--max-delay", type=float, default=1.5, help="maximum delay of a kill, s")
    parser.add_argument("--out", type=Path, default=Path("docs/results/kill_reward_training.md"), help="results page")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data, interrupted_dir = record_episodes(root / "data"), root / "interrupted"
        steps_at_kill = run_with_kills(
            train_command(data, interrupted_dir),
            lambda: read_manifest_count(interrupted_dir / TRAIN_STATE_DIR, "steps"),
            args.kills,
            args.max_delay,
        )
        command = partial(train_command, data)
        identical = compare_with_uninterrupted_run(command, root, CHECKPOINT_DIR, ARCHITECTURE)
    args.out.write_text(report(steps_at_kill, identical))
    if not identical:
        raise SystemExit("the resumed run differs from the uninterrupted one")


if __name__ == "__main__":
    main()
