"""Whether every faulty episode of a large dataset is named, and no sound one: python benchmarks/faulty_dataset.py

Writes docs/results/faulty_dataset.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from faulty import CORRUPTION_KINDS, CorruptionResult, run_trial

from embodied_rm.experiments.results_page import describe_machine


def report(result: CorruptionResult, episodes: int, per_kind: int, elapsed_s: float) -> str:
    """The page for docs/results."""
    missed, false_reports = len(result.corrupted - result.reported), len(result.reported - result.corrupted)
    sound = episodes - len(result.corrupted)
    return "\n".join(
        [
            "# A dataset with faults",
            "",
            f"{result.num_kinds} kinds of fault, {per_kind} episodes each, in a LeRobot v2.1 dataset of {episodes} episodes, "
            f"two views: written, damaged, looked through (what `embodied-rm inspect` does) and read, {elapsed_s:.0f} s "
            f"in all. {describe_machine()}.",
            "",
            f"    python benchmarks/faulty_dataset.py --episodes {episodes} --of-each {per_kind}",
            "",
            "| | |",
            "|---|---|",
            f"| faulty episodes, of which named | {len(result.corrupted)}, {len(result.corrupted) - missed} |",
            f"| kinds told in other words than theirs | {', '.join(result.misreported) or 'none'} |",
            f"| sound episodes, of which named | {sound}, {false_reports} |",
            f"| sound episodes whose frames or numbers differ from the undamaged dataset's by a bit | "
            f"{len(result.altered)} |",
            "",
            f"Kinds: {', '.join(CORRUPTION_KINDS)}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500, help="of the dataset")
    parser.add_argument("--of-each", type=int, default=10, help="episodes that a kind of fault is done to")
    parser.add_argument("--out", type=Path, default=Path("docs/results/faulty_dataset.md"), help="the page")
    args = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = run_trial(Path(folder), episodes=args.episodes, per_kind=args.of_each)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(result, args.episodes, args.of_each, time.monotonic() - start))


if __name__ == "__main__":
    main()
