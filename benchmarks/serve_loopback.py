"""Throughput of the service on loopback, relative to in-process scoring: python benchmarks/serve_loopback.py

64 environments, two views, the bundled model; rounds of both alternate. Writes a section of docs/results/benchmarks.md.
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

from embodied_rm.api.local_client import LocalClient
from embodied_rm.client import episode_handles
from embodied_rm.client.reward_client import RewardClient
from embodied_rm.experiments.results_page import write_section
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import BUNDLED_CHECKPOINT

VIEW_NAMES = ("front", "wrist")
REPLICA_LABEL = "Ray Serve replica, state returned"
"""Reported without a target."""
WARM_UP_STEPS = 3
MIN_THROUGHPUT_SHARE, MAX_LATE_BATCHES = 0.70, 1.5
"""Targets: share of the in-process throughput, and delay of the slowest 1 % of steps, in batch times."""


def time_steps(step: Callable[[], None], steps: int) -> list[float]:
    """Return the seconds per step, after a warm-up."""
    times = []
    for _ in range(WARM_UP_STEPS):
        step()
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


class InProcessScorer:
    """In-process scoring, by the client of `embodied_rm.LearnedReward`."""

    def __init__(self, envs: int, frames: np.ndarray) -> None:
        self.client, self.rows = LocalClient(load_progress_net(BUNDLED_CHECKPOINT)), range(envs)
        self.frames = {name: np.ascontiguousarray(frames[:, i]) for i, name in enumerate(VIEW_NAMES)}
        self.client.reset(self.rows, [0] * envs, [LIFT_INSTRUCTION] * envs, self.frames)

    def step(self) -> None:
        """Score one frame per environment."""
        self.client.step(self.rows, [0] * len(self.rows), [0] * len(self.rows), self.frames)


class ServiceScorer:
    """Scoring by a service."""

    def __init__(self, url: str, envs: int, frames: np.ndarray, keep_state: bool) -> None:
        self.client = RewardClient(url)
        self.frames = {name: np.ascontiguousarray(frames[:, i]) for i, name in enumerate(VIEW_NAMES)}
        _, self.handle = episode_handles.reset_episodes(
            self.client, range(envs), [0] * envs, [LIFT_INSTRUCTION] * envs, self.frames, keep_state=keep_state
        )

    def step(self) -> None:
        """Score one frame per environment."""
        _, self.handle = episode_handles.step_episodes(self.client, self.handle, self.frames)


def report(envs: int, in_process_s: list[float], service_s: dict[str, list[float]]) -> str:
    """Return the section as Markdown."""
    in_process_median = float(np.median(in_process_s))
    lines = [
        "## Reward service on loopback",
        "",
        f"`python benchmarks/serve_loopback.py`: {envs} environments, two views of 64 x 64, the bundled "
        "model; medians of alternating rounds. Late: p99 of a step minus the in-process median, in "
        "units of that median.",
        "",
        "| | frames/s | share | late | target |",
        "|---|---|---|---|---|",
        f"| in process: `LearnedReward` | {2 * envs / in_process_median:.0f} | 1 | | |",
    ]
    for name, times in service_s.items():
        median, p99 = float(np.median(times)), float(np.quantile(times, 0.99))
        late = (p99 - in_process_median) / in_process_median
        target = "" if name == REPLICA_LABEL else f">= {MIN_THROUGHPUT_SHARE:.2f}; <= {MAX_LATE_BATCHES}"
        share = in_process_median / median
        lines.append(f"| {name} | {2 * envs / median:.0f} | {share:.2f} | {late:.2f} | {target} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=64, help="number of environments")
    parser.add_argument("--rounds", type=int, default=12, help="rounds of each scorer")
    parser.add_argument("--steps", type=int, default=50, help="steps per round")
    parser.add_argument("--page", type=Path, default=Path("docs/results/benchmarks.md"), help="page with the section")
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
            "service, state returned": ServiceScorer(service.url, args.envs, frames, keep_state=True),
            REPLICA_LABEL: ServiceScorer(replica.url, args.envs, frames, keep_state=True),
        }
        for round_index in range(args.rounds + 1):
            round_times = {name: time_steps(scorer.step, args.steps) for name, scorer in scorers.items()}
            in_process_times = time_steps(in_process.step, args.steps)
            medians = {name: round(1e3 * float(np.median(times)), 1) for name, times in round_times.items()}
            logging.info("round %d: %.1f ms in process, %s", round_index, 1e3 * np.median(in_process_times), medians)
            if round_index:  # the first round is a warm-up
                in_process_s += in_process_times
                for name, times in round_times.items():
                    service_s.setdefault(name, []).extend(times)
    text = report(args.envs, in_process_s, service_s)
    logging.info(text)
    write_section(args.page, "serve loopback", text)


if __name__ == "__main__":
    main()
