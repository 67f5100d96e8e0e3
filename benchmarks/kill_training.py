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
from killing import killed, told

from embodied_rm.checkpoint_io import load_tensors
from embodied_rm.models.checkpoint import ARCHITECTURE
from embodied_rm.train import CHECKPOINT, UNFINISHED

UPDATES = 600
ROBOT = [sys.executable, "-m", "embodied_rm"]


def recorded(folder: Path) -> Path:
    """Successes and failures of a simulated task."""
    keys = ["tasks=[lift_cube]", "successes=6", "failures=6", f"out={folder}"]
    subprocess.run([*ROBOT, "collect", *keys], check=True, stdout=subprocess.DEVNULL)
    return folder


def command(data: Path, out: Path) -> list[str]:
    """The run: its state is stored every quarter of a second."""
    small = ["batch=4", "moments=4", "augment.shift=0.06", "checkpoint_seconds=0.25"]
    return [*ROBOT, "train", f"data={data}", f"out={out}", "resume=true", f"updates={UPDATES}", *small]


def report(deaths: list[int], same: bool) -> str:
    """The page for docs/results."""
    return "\n".join(
        [
            "# Training killed and resumed",
            "",
            f"`embodied-rm train`, {UPDATES} updates on 12 episodes of `lift_cube`, killed {len(deaths)} times "
            f"(SIGKILL) at random moments, resumed each time, against an undisturbed run: the weights at the end are "
            f"{'the same to the last bit' if same else '**different**'}. Updates stored at each death: "
            f"{', '.join(map(str, deaths))}.",
            "",
            f"    python benchmarks/kill_training.py --kills {len(deaths)}",
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
        data, parts = recorded(root / "data"), root / "parts"
        deaths = killed(command(data, parts), lambda: told(parts / UNFINISHED, "updates"), args.kills, args.longest)
        for name in ("parts", "whole"):
            subprocess.run(command(data, root / name), check=True, stdout=subprocess.DEVNULL)
        nets = [load_tensors(root / name / CHECKPOINT, ARCHITECTURE)[0] for name in ("parts", "whole")]
    same = all(torch.equal(nets[0][name], nets[1][name]) for name in nets[1])
    args.out.write_text(report(deaths, same))
    if not same:
        raise SystemExit("the resumed run differs from the undisturbed one")


if __name__ == "__main__":
    main()
