"""Replicas under load: python benchmarks/serve_ray.py

Starts `embodied-rm serve ray.min_replicas=1 ray.max_replicas=2` with the bundled model. Each client scores known clips,
and every prediction is compared with that of a single service. Ray Serve adds the second replica under load; then
replicas are killed. Writes a section of docs/scale.md.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread

import numpy as np
from serving import PROGRESS_TOLERANCE, SERVE_COMMAND, RunningService, free_port, run_service
from wire_client import LIFT_INSTRUCTION

from embodied_rm.client import episode_handles
from embodied_rm.client.reward_client import RewardClient
from embodied_rm.experiments.results_page import write_section

NUM_VIDEOS, NUM_FRAMES, IMAGE_SIZE = 4, 12, 64
REPLICA_PROCESS_NAME = b"ray::ServeReplica:embodied_rm"


@dataclass
class RequestCounts:
    """Results of all clients."""

    num_answered: int = 0
    num_wrong: int = 0
    failures: list[str] = field(default_factory=list)
    """Exceptions that ended a client."""
    num_retried: int = 0


def make_videos() -> np.ndarray:
    """Return clips [NUM_VIDEOS, NUM_FRAMES, H, W, 3]."""
    return np.random.default_rng(0).integers(0, 256, (NUM_VIDEOS, NUM_FRAMES, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)


def score_video(client: RewardClient, env: int, episode: int, video: np.ndarray) -> np.ndarray:
    """Return the progress of a clip, [NUM_FRAMES]."""
    prediction, handle = episode_handles.reset_episodes(
        client, [env], [episode], [LIFT_INSTRUCTION], {"front": video[:1]}, keep_state=True
    )
    values = [prediction.progress[0]]
    for frame in video[1:]:
        prediction, handle = episode_handles.step_episodes(client, handle, {"front": frame[None]})
        values.append(prediction.progress[0])
    client.end([env], [episode])
    return np.array(values)


def expected_progress(videos: np.ndarray) -> np.ndarray:
    """Return the progress that a single service predicts, [NUM_VIDEOS, NUM_FRAMES]."""
    with run_service(SERVE_COMMAND) as service, RewardClient(service.url) as client:
        return np.stack([score_video(client, 0, i, video) for i, video in enumerate(videos)])


def run_client(url: str, videos: np.ndarray, expected: np.ndarray, counts: RequestCounts, stop: Event) -> None:
    """Score one clip after the other until `stop` is set."""
    client, episode = RewardClient(url, retry_timeout_s=120), 0
    try:
        while not stop.is_set():
            video_index = episode % NUM_VIDEOS
            values = score_video(client, 0, episode, videos[video_index])
            counts.num_wrong += int((np.abs(values - expected[video_index]) > PROGRESS_TOLERANCE).sum())
            counts.num_answered += NUM_FRAMES
            episode += 1
    except Exception as error:  # reported in the section
        counts.failures.append(f"{type(error).__name__}: {error}")
    counts.num_retried += client.num_retries


def replica_pids() -> list[int]:
    """Return the process ids of the live replicas."""
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                cmdline = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if cmdline.startswith(REPLICA_PROCESS_NAME):
                pids.append(int(folder.name))
    return sorted(pids)


def is_replaced(pid: int) -> bool:
    """Return whether there are two replicas, without this one."""
    pids = replica_pids()
    return len(pids) == 2 and pid not in pids


def wait_for(condition: Callable[[], bool], seconds: float) -> float:
    """Return the seconds until a condition holds. Raises `TimeoutError` after `seconds`."""
    start = time.perf_counter()
    while not condition():
        if time.perf_counter() - start > seconds:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.2)
    return time.perf_counter() - start


def run_trial(service: RunningService, clients: int, seconds: float, kills: int) -> tuple[list[str], RequestCounts]:
    """Return the rows of the table (event, duration, replicas, frames per second) and the counts."""
    videos = make_videos()
    expected, counts, stop, rows = expected_progress(videos), RequestCounts(), Event(), []
    threads = [Thread(target=run_client, args=(service.url, videos, expected, counts, stop)) for _ in range(clients)]
    for thread in threads:
        thread.start()

    def measure_rate(event: str, duration: float | None) -> None:
        answered_before, start = counts.num_answered, time.perf_counter()
        time.sleep(seconds)
        rate = (counts.num_answered - answered_before) / (time.perf_counter() - start)
        rows.append(
            f"| {event} | {'' if duration is None else f'{duration:.0f}'} | {len(replica_pids())} | {rate:.0f} |"
        )
        logging.info(rows[-1])

    scale_up_s = wait_for(lambda: len(replica_pids()) == 2, 180)
    measure_rate("second replica added under load", scale_up_s)
    for _ in range(kills):
        victim = replica_pids()[0]
        os.kill(victim, signal.SIGKILL)
        duration = wait_for(partial(is_replaced, victim), 180)
        measure_rate("replica killed and replaced", duration)
    stop.set()
    for thread in threads:
        thread.join()
    return rows, counts


def report(rows: list[str], counts: RequestCounts, clients: int) -> str:
    """Return the section as Markdown."""
    return "\n".join(
        [
            "## Replicas under load",
            "",
            f"`python benchmarks/serve_ray.py`: {clients} clients of one environment each, 1 to 2 Ray Serve replicas. "
            f"{counts.num_answered} frames scored, {counts.num_wrong} of them unlike a single service, "
            f"{len(counts.failures)} failed requests, {counts.num_retried} retries.",
            "",
            "| event | seconds | replicas | frames/s afterwards |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20, help="seconds of load after each event")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--page", type=Path, default=Path("docs/scale.md"), help="page with the section")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    command = [
        *SERVE_COMMAND,
        f"port={free_port()}",
        "ray.min_replicas=1",
        "ray.max_replicas=2",
        "ray.target_ongoing_requests=2",
        "ray.num_cpus=0.5",
    ]
    with run_service(command) as service:
        rows, counts = run_trial(service, args.clients, args.seconds, args.kills)
    write_section(args.page, "serve ray", report(rows, counts, args.clients), title="Scale")
    if counts.failures or counts.num_wrong:
        raise SystemExit("\n".join(counts.failures) or f"{counts.num_wrong} predictions were wrong")


if __name__ == "__main__":
    main()
