"""64 environments scored by a service on this machine, against scoring in process: python benchmarks/serve_loopback.py

Rounds of both take turns, with the bundled model and two views. Writes the section of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from serving import SERVE_COMMAND, free_port, run_service
from wire_client import LIFT_INSTRUCTION

from embodied_rm.experiments.results_page import write_section
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.serve.client import episode_handles
from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.types import Views

VIEW_NAMES = ("front", "wrist")
REPLICA_LABEL = "a replica by Ray Serve, memory sent along"
"""Is measured beside the others, and nothing is asked of it."""
WARM_UP_STEPS = 3
MIN_THROUGHPUT_SHARE, MAX_LATE_BATCHES = 0.70, 1.5
"""What the issue asks for: share of in-process frames, and batch times that the slowest hundredth may be late by."""


def time_steps(step: Callable[[], None], steps: int) -> list[float]:
    """Seconds of each step, after a few by which whoever had rested comes back to work."""
    times = []
    for _ in range(WARM_UP_STEPS):
        step()
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


class InProcessScorer:
    """Scoring in this process."""

    def __init__(self, envs: int, frames: np.ndarray) -> None:
        self.model = SubgoalRewardModel(load_progress_net(BUNDLED_CHECKPOINT))
        self.views = Views(names=VIEW_NAMES, frames=frames)
        self.state = self.model.reset(self.views, [LIFT_INSTRUCTION] * envs)

    def step(self) -> None:
        """One frame of all."""
        _, self.state = self.model.step(self.state, self.views)


class ServiceScorer:
    """Scoring by a service."""

    def __init__(self, url: str, envs: int, frames: np.ndarray, keep_state: bool) -> None:
        self.client = RewardClient(url)
        self.frames = {name: np.ascontiguousarray(frames[:, i]) for i, name in enumerate(VIEW_NAMES)}
        _, self.handle = episode_handles.reset_episodes(
            self.client, range(envs), [0] * envs, [LIFT_INSTRUCTION] * envs, self.frames, keep_state=keep_state
        )

    def step(self) -> None:
        """One frame of all."""
        _, self.handle = episode_handles.step_episodes(self.client, self.handle, self.frames)


def report(envs: int, in_process_s: list[float], service_s: dict[str, list[float]]) -> str:
    """The section."""
    in_process_median = float(np.median(in_process_s))
    lines = [
        "## Reward service on loopback",
        "",
        f"`python benchmarks/serve_loopback.py`: {envs} environments in step, two views of 64 x 64, the model in the "
        "box; medians of rounds that took turns with scoring in process. Late: the slowest hundredth of the service's "
        "steps less the median in process, in batch times of that.",
        "",
        "| | frames/s | share | late | asked |",
        "|---|---|---|---|---|",
        f"| in process | {2 * envs / in_process_median:.0f} | 1 | | |",
    ]
    for name, times in service_s.items():
        median, p99 = float(np.median(times)), float(np.quantile(times, 0.99))
        row = f"| {name} | {2 * envs / median:.0f} | {in_process_median / median:.2f} | {(p99 - in_process_median) / in_process_median:.2f} |"
        lines.append(
            f"{row} {'' if name == REPLICA_LABEL else f'>= {MIN_THROUGHPUT_SHARE:.2f}; <= {MAX_LATE_BATCHES}'} |"
        )
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
    in_process, service_s = InProcessScorer(args.envs, frames), dict[str, list[float]]()
    in_process_s: list[float] = []
    with (
        run_service(SERVE_COMMAND) as service,
        run_service([*SERVE_COMMAND, f"port={free_port()}", "ray.min_replicas=1"]) as replica,
    ):
        scorers = {
            "service": ServiceScorer(service.url, args.envs, frames, keep_state=False),
            "service, memory sent along": ServiceScorer(service.url, args.envs, frames, keep_state=True),
            REPLICA_LABEL: ServiceScorer(replica.url, args.envs, frames, keep_state=True),
        }
        for round_index in range(args.rounds + 1):
            round_times = {name: time_steps(scorer.step, args.steps) for name, scorer in scorers.items()}
            in_process_times = time_steps(in_process.step, args.steps)
            medians = {name: round(1e3 * float(np.median(times)), 1) for name, times in round_times.items()}
            logging.info("round %d: %.1f ms here, %s", round_index, 1e3 * np.median(in_process_times), medians)
            if round_index:  # the first one warms up
                in_process_s += in_process_times
                for name, times in round_times.items():
                    service_s.setdefault(name, []).extend(times)
    text = report(args.envs, in_process_s, service_s)
    logging.info(text)
    write_section(args.page, "serve loopback", text)


if __name__ == "__main__":
    main()
