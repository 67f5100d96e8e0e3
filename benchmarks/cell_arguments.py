"""The command line of benchmarks that measure cells per task and seed, in several calls if need be."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path


def parse_cell_arguments(
    description: str | None, out: str, page: Path, seeds: Sequence[int], tasks: Sequence[str]
) -> argparse.Namespace:
    """Parse `--out`, `--page`, `--seeds` and `--tasks`, and log to the terminal.

    Args:
        description: Help text, that of the script.
        out: Default folder of the runs, in `runs`.
        page: Default results page.
        seeds: Default seeds.
        tasks: Default tasks.

    Returns:
        The values of the four options, as attributes.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs") / out, help="folder of the runs")
    parser.add_argument("--page", type=Path, default=page, help="results page")
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds, help="seeds to measure now")
    parser.add_argument("--tasks", nargs="+", default=tasks, help="tasks to measure now")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    return parser.parse_args()
