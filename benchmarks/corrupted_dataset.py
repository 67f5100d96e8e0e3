"""Detection of corrupted episodes in a large dataset: python benchmarks/corrupted_dataset.py

Every corrupted episode must be named, and no intact one. Writes docs/results/corrupted_dataset.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from corruptions import CORRUPTION_KINDS, CorruptionResult, run_trial

from embodied_rm.experiments.results_page import describe_machine


def report(result: CorruptionResult, episodes: int, per_kind: int, elapsed_s: float) -> str:
    """Return the page for docs/results."""
    missed, false_reports = len(result.corrupted - result.reported), len(result.reported - result.corrupted)
    num_intact = episodes - len(result.corrupted)
    return "\n".join(
        [
            "# A corrupted dataset",
            "",
            f"{result.num_kinds} kinds of corruption, {per_kind} episodes each, in a LeRobot v2.1 dataset of "
            f"{episodes} episodes with two views. Writing, corrupting, validating (`embodied-rm inspect` with "
            f"`features.max_drift_s=0.05`) and reading took {elapsed_s:.0f} s. {describe_machine()}.",
            "",
            f"    python benchmarks/corrupted_dataset.py --episodes {episodes} --per-kind {per_kind}",
            "",
            "| | |",
            "|---|---|",
            f"| corrupted episodes, of which named | {len(result.corrupted)}, {len(result.corrupted) - missed} |",
            f"| kinds with a wrong message | {', '.join(result.misreported) or 'none'} |",
            f"| intact episodes, of which named | {num_intact}, {false_reports} |",
            f"| intact episodes whose frames or numbers differ from the intact dataset | {len(result.altered)} |",
            "",
            f"Kinds: {', '.join(CORRUPTION_KINDS)}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500, help="episodes of the dataset")
    parser.add_argument("--per-kind", type=int, default=10, help="corrupted episodes per kind")
    parser.add_argument("--out", type=Path, default=Path("docs/results/corrupted_dataset.md"), help="results page")
    args = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = run_trial(Path(folder), episodes=args.episodes, per_kind=args.per_kind)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(result, args.episodes, args.per_kind, time.monotonic() - start))


if __name__ == "__main__":
    main()
