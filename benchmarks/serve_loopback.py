"""64 environments scored by a service on this machine, against scoring in process: python benchmarks/serve_loopback.py

Rounds of both take turns, with the model in the box and two views. Writes the section of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from serving import REAL, free_port, running
from wire_client import LIFT

from embodied_rm.cli.benchmarks import put_section
from embodied_rm.cli.places import IN_THE_BOX
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.plans import Plans
from embodied_rm.serve.client import tracks
from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.types import Views

VIEWS = ("front", "wrist")
REPLICA = "a replica by Ray Serve, memory sent along"
"""Is measured beside the others, and nothing is asked of it."""
FEW = 3
ASKED, SLOWER = 0.70, 1.5
"""What the issue asks for: share of in-process frames, and batch times that the slowest hundredth may be late by."""


def timed(step: Callable[[], None], steps: int) -> list[float]:
    """Seconds of each step, after a few by which whoever had rested comes back to work."""
    times = []
    for _ in range(FEW):
        step()
    for _ in range(steps):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return times


class Here:
    """Scoring in this process."""

    def __init__(self, envs: int, frames: np.ndarray) -> None:
        self.model = Plans(load_progress_net(IN_THE_BOX))
        self.views = Views(names=VIEWS, frames=frames)
        self.memory = self.model.begin(self.views, [LIFT] * envs)

    def step(self) -> None:
        """One frame of all."""
        _, self.memory = self.model.advance(self.memory, self.views)


class There:
    """Scoring by a service."""

    def __init__(self, url: str, envs: int, frames: np.ndarray, keep: bool) -> None:
        self.client = RewardClient(url)
        self.frames = {name: np.ascontiguousarray(frames[:, i]) for i, name in enumerate(VIEWS)}
        _, self.now = tracks.begin(self.client, range(envs), [0] * envs, [LIFT] * envs, self.frames, keep=keep)

    def step(self) -> None:
        """One frame of all."""
        _, self.now = tracks.advance(self.client, self.now, self.frames)


def report(envs: int, here: list[float], there: dict[str, list[float]]) -> str:
    """The section."""
    own = float(np.median(here))
    lines = [
        "## Reward service on loopback",
        "",
        f"`python benchmarks/serve_loopback.py`: {envs} environments in step, two views of 64 x 64, the model in the "
        "box; medians of rounds that took turns with scoring in process. Late: the slowest hundredth of the service's "
        "steps less the median in process, in batch times of that.",
        "",
        "| | frames/s | share | late | asked |",
        "|---|---|---|---|---|",
        f"| in process | {2 * envs / own:.0f} | 1 | | |",
    ]
    for name, times in there.items():
        middle, slow = float(np.median(times)), float(np.quantile(times, 0.99))
        row = f"| {name} | {2 * envs / middle:.0f} | {own / middle:.2f} | {(slow - own) / own:.2f} |"
        lines.append(f"{row} {'' if name == REPLICA else f'>= {ASKED:.2f}; <= {SLOWER}'} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=64, help="environments")
    parser.add_argument("--rounds", type=int, default=12, help="of both ways")
    parser.add_argument("--steps", type=int, default=50, help="of a round")
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks.md"), help="whose section is written")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    frames = np.random.default_rng(0).integers(0, 256, (args.envs, 2, 64, 64, 3), np.uint8)
    here, there = Here(args.envs, frames), dict[str, list[float]]()
    own: list[float] = []
    with running(REAL) as service, running([*REAL, f"port={free_port()}", "ray.replicas=1"]) as replica:
        ways = {
            "service": There(service.url, args.envs, frames, keep=False),
            "service, memory sent along": There(service.url, args.envs, frames, keep=True),
            REPLICA: There(replica.url, args.envs, frames, keep=True),
        }
        for number in range(args.rounds + 1):
            told = {name: timed(way.step, args.steps) for name, way in ways.items()}
            mine = timed(here.step, args.steps)
            middles = {name: round(1e3 * float(np.median(times)), 1) for name, times in told.items()}
            logging.info("round %d: %.1f ms here, %s", number, 1e3 * np.median(mine), middles)
            if number:  # the first one warms up
                own += mine
                for name, times in told.items():
                    there.setdefault(name, []).extend(times)
    text = report(args.envs, own, there)
    logging.info(text)
    put_section(args.page, "serve loopback", text)


if __name__ == "__main__":
    main()
