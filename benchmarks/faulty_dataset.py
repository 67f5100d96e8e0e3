"""Whether every faulty episode of a large dataset is named, and no sound one: python benchmarks/faulty_dataset.py

Writes docs/results/faulty_dataset.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from faulty import KINDS, Tried, tried

from embodied_rm.cli.benchmarks import machine


def report(found: Tried, episodes: int, of_each: int, seconds: float) -> str:
    """The page for docs/results."""
    missed, wronged = len(found.damaged - found.named), len(found.named - found.damaged)
    sound = episodes - len(found.damaged)
    return "\n".join(
        [
            "# A dataset with faults",
            "",
            f"{found.kinds} kinds of fault, {of_each} episodes each, in a LeRobot v2.1 dataset of {episodes} episodes, "
            f"two views: written, damaged, looked through (what `embodied-rm inspect` does) and read, {seconds:.0f} s "
            f"in all. {machine()}.",
            "",
            f"    python benchmarks/faulty_dataset.py --episodes {episodes} --of-each {of_each}",
            "",
            "| | |",
            "|---|---|",
            f"| faulty episodes, of which named | {len(found.damaged)}, {len(found.damaged) - missed} |",
            f"| kinds told in other words than theirs | {', '.join(found.untold) or 'none'} |",
            f"| sound episodes, of which named | {sound}, {wronged} |",
            f"| sound episodes whose frames or numbers differ from the undamaged dataset's by a bit | "
            f"{len(found.different)} |",
            "",
            f"Kinds: {', '.join(KINDS)}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500, help="of the dataset")
    parser.add_argument("--of-each", type=int, default=10, help="episodes that a kind of fault is done to")
    parser.add_argument("--out", type=Path, default=Path("docs/results/faulty_dataset.md"), help="the page")
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = tried(Path(folder), episodes=args.episodes, of_each=args.of_each)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(found, args.episodes, args.of_each, time.monotonic() - started))


if __name__ == "__main__":
    main()
