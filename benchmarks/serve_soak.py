"""One hour of continuous use: python benchmarks/serve_soak.py

Uses the bundled model. Environments step at a fixed pace, well below capacity, with clips whose predictions are known.
Other clients send invalid requests, start episodes that they never end, and disconnect. Memory and descriptors are
recorded once per second. Writes a section of docs/results/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from serving import PROGRESS_TOLERANCE, SERVE_COMMAND, RunningService, run_service
from wire_client import LIFT_INSTRUCTION, VIEW_NAMES, WireConnection, frames_header, progress_values

from embodied_rm.client.wire import HEADER_LENGTH_HEADER
from embodied_rm.experiments.results_page import write_section

NUM_ENVS, NUM_VIDEOS, NUM_FRAMES, IMAGE_SIZE = 8, 4, 25, 64
STEP_INTERVAL_S = 0.25
"""Seconds between two frames of an environment: 32 requests/s in total."""
IDLE_TIMEOUT_S = 30
"""Idle timeout of sessions: short, so that evictions are frequent."""
MIB = 1 << 20
MAX_MEMORY_SLOPE_MIB, MAX_P99_RATIO = 1.0, 1.1
"""Targets: MiB per ten minutes, and ratio of the p99 of the last sixth to that of the first."""


@dataclass
class SoakLog:
    """Measurements of the trial."""

    answer_times: list[float] = field(default_factory=list)
    """Arrival times of responses, in seconds."""
    durations: list[float] = field(default_factory=list)
    num_wrong: int = 0
    num_rejected: int = 0
    resource_samples: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds, bytes in memory, open descriptors."""


async def score_video(
    connection: WireConnection, env: int, episode: int, video: np.ndarray, log: SoakLog, run_start: float
) -> Any:
    """Return the progress of a clip, sent at the fixed pace."""
    values = []
    for step, frame in enumerate(video):
        fields: dict[str, Any] = {"steps": [step]} if step else {"instructions": [LIFT_INSTRUCTION]}
        start = time.perf_counter()
        answer = await connection.request(
            "/v1/step" if step else "/v1/reset",
            frames_header("soak", [env], [episode], IMAGE_SIZE, **fields),
            frame.tobytes(),
        )
        now = time.perf_counter()
        assert answer.status == 200, answer.body
        log.answer_times.append(now - run_start)
        log.durations.append(now - start)
        values += progress_values(answer)
        await asyncio.sleep(max(0.0, STEP_INTERVAL_S - (now - start)))
    await connection.request("/v1/end", {"client_id": "soak", "env_ids": [env], "episode_ids": [episode]}, b"")
    return np.array(values)


async def run_env(
    service: RunningService,
    env: int,
    videos: np.ndarray,
    expected: np.ndarray,
    log: SoakLog,
    deadline: float,
    run_start: float,
) -> None:
    """Score episodes one after the other, with a new connection every five episodes."""
    await asyncio.sleep(STEP_INTERVAL_S * env / NUM_ENVS)
    connection = WireConnection(*service.address)
    for episode in itertools.count(1):
        if time.perf_counter() > deadline:
            break
        video_index = (env + episode) % len(videos)
        values = await score_video(connection, env, episode, videos[video_index], log, run_start)
        log.num_wrong += int((np.abs(values - expected[video_index]) > PROGRESS_TOLERANCE).sum())
        if episode % 5 == 0:
            connection.close()
    connection.close()


async def send_bad_requests(service: RunningService, video: np.ndarray, log: SoakLog, deadline: float) -> None:
    """Send four bad requests per second, in turn: invalid JSON, wrong length, an episode without end, and a disconnect
    within a request."""
    for index in itertools.count():
        if time.perf_counter() > deadline:
            break
        connection, kind = WireConnection(*service.address), index % 4
        header = frames_header(f"other{index}", [0], [0], IMAGE_SIZE, instructions=[LIFT_INSTRUCTION])
        if kind == 0:
            answer = await connection.request("/v1/reset", {"client_id": 7}, b"\0" * 100)
            log.num_rejected += answer.status == 422
        elif kind == 1:
            answer = await connection.request("/v1/reset", header, video[0].tobytes()[:-1])
            log.num_rejected += answer.status == 422
        elif kind == 2:
            await connection.request("/v1/reset", header, video[0].tobytes())
        else:
            _, writer = await asyncio.open_connection(*service.address)
            writer.write(
                b"POST /v1/reset HTTP/1.1\r\nhost: x\r\n"
                + f"{HEADER_LENGTH_HEADER}: 9\r\ncontent-length: 99\r\n\r\n{{".encode()
            )
            await writer.drain()
            writer.transport.abort()
        connection.close()
        await asyncio.sleep(0.25)


async def sample_resources(service: RunningService, log: SoakLog, deadline: float, run_start: float) -> None:
    """Record memory and descriptors of the service, once per second."""
    while (now := time.perf_counter()) < deadline:
        log.resource_samples.append((now - run_start, service.memory_bytes(), service.num_descriptors()))
        if len(log.resource_samples) % 60 == 0:
            logging.info(
                "%d min: %.1f MiB, %d descriptors",
                len(log.resource_samples) // 60,
                log.resource_samples[-1][1] / MIB,
                log.resource_samples[-1][2],
            )
        await asyncio.sleep(1)


async def run_soak(service: RunningService, seconds: float) -> SoakLog:
    """Run all environments and bad requests concurrently."""
    rng = np.random.default_rng(0)
    videos = rng.integers(0, 256, (NUM_VIDEOS, NUM_FRAMES, len(VIEW_NAMES), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    connections = [WireConnection(*service.address) for _ in videos]
    pairs = zip(connections, videos, strict=True)
    first_scores = [score_video(each, 1000 + i, 0, video, SoakLog(), 0.0) for i, (each, video) in enumerate(pairs)]
    expected, log = np.stack(await asyncio.gather(*first_scores)), SoakLog()
    for connection in connections:
        connection.close()
    run_start = time.perf_counter()
    deadline = run_start + seconds
    env_tasks = [run_env(service, env, videos, expected, log, deadline, run_start) for env in range(NUM_ENVS)]
    await asyncio.gather(
        *env_tasks,
        send_bad_requests(service, videos[0], log, deadline),
        sample_resources(service, log, deadline, run_start),
    )
    return log


@dataclass(frozen=True)
class SoakSegment:
    """Statistics of a part of the trial."""

    p99_s: float
    """p99 of the response times, in seconds."""
    mean_memory_mib: float
    """Mean memory, in MiB."""
    descriptors: tuple[int, int, int]
    """Minimum, median and maximum."""


def make_segment(log: SoakLog, start: float, stop: float) -> SoakSegment:
    """Return the statistics between two times, in seconds."""
    times, durations, samples = np.array(log.answer_times), np.array(log.durations), np.array(log.resource_samples)
    segment_samples = samples[(samples[:, 0] >= start) & (samples[:, 0] < stop)]
    p99_s = float(np.quantile(durations[(times >= start) & (times < stop)], 0.99))
    lowest, median, highest = np.quantile(segment_samples[:, 2], (0, 0.5, 1), method="nearest").astype(int).tolist()
    return SoakSegment(p99_s, float(segment_samples[:, 1].mean()) / MIB, (lowest, median, highest))


def make_segments(log: SoakLog, seconds: float) -> list[SoakSegment]:
    """Split the trial into sixths."""
    return [make_segment(log, i * seconds / 6, (i + 1) * seconds / 6) for i in range(6)]


def memory_slope(log: SoakLog) -> float:
    """Return the least-squares slope of the memory, in MiB per ten minutes."""
    samples = np.array(log.resource_samples)
    return float(np.polyfit(samples[:, 0], samples[:, 1], 1)[0]) * 600 / MIB


def failed_targets(log: SoakLog, seconds: float) -> list[str]:
    """Return descriptions of the targets that are missed."""
    segments = make_segments(log, seconds)
    failed = {
        f"{log.num_wrong} predictions were wrong": log.num_wrong > 0,
        f"memory rises by {memory_slope(log):.2f} MiB per ten minutes": memory_slope(log) > MAX_MEMORY_SLOPE_MIB,
        "the last sixth's p99 is above the first's": segments[-1].p99_s > MAX_P99_RATIO * segments[0].p99_s,
        "the number of descriptors has changed": segments[-1].descriptors[1] != segments[0].descriptors[1],
    }
    return [message for message, is_failed in failed.items() if is_failed]


def report(log: SoakLog, seconds: float) -> str:
    """Return the section as Markdown."""
    segments = make_segments(log, seconds)
    rows = []
    for i, segment in enumerate(segments):
        lowest, median, highest = segment.descriptors
        memory = f"{segment.mean_memory_mib:.1f}"
        rows.append(f"| {i + 1} | {1e3 * segment.p99_s:.1f} | {memory} | {median} ({lowest} to {highest}) |")
    return "\n".join(
        [
            "## Soak",
            "",
            f"`python benchmarks/serve_soak.py`: the bundled model for {seconds / 60:.0f} minutes, "
            f"{NUM_ENVS} environments at a fixed pace, {len(log.durations)} responses; in addition {log.num_rejected} "
            "rejected requests, episodes without end and disconnects. Predictions that differ from earlier ones for "
            f"the same clip: {log.num_wrong}. Memory slope: {memory_slope(log):+.2f} MiB per ten minutes (target: "
            f"at most {MAX_MEMORY_SLOPE_MIB:g}). p99 of the last sixth over that of the first: "
            f"{segments[-1].p99_s / segments[0].p99_s:.2f} (target: at most {MAX_P99_RATIO:g}).",
            "",
            "| sixth | p99, ms | memory, MiB | descriptors: median (range) |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--page", type=Path, default=Path("docs/results/reliability.md"), help="page with the section")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with run_service([*SERVE_COMMAND, f"limits.idle_timeout_s={IDLE_TIMEOUT_S}"]) as service:
        log = asyncio.run(run_soak(service, args.seconds))
    write_section(args.page, "serve soak", report(log, args.seconds), title="Reliability")
    if failed := failed_targets(log, args.seconds):
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
