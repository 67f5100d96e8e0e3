"""Isolation of environments: python benchmarks/serve_hashes.py

The model predicts a hash of all frames of an environment, and every response is compared with it. Many clients send
random batches. Some requests are abandoned and retried, some are sent twice, episodes start and end, and the service is
restarted by SIGTERM and SIGKILL. Writes a section of docs/results/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
from serving import HASH_SERVICE_COMMAND, RunningService, free_port, start_service
from wire_client import (
    LIFT_INSTRUCTION,
    ConnectionBrokenError,
    HashedEpisode,
    WireConnection,
    progress_values,
    request_header,
)

from embodied_rm.experiments.results_page import write_section

ENVS_PER_CLIENT = 8
"""Environments per client."""
ABANDON_RATE, DUPLICATE_RATE, END_RATE, RESET_RATE = 0.01, 0.01, 0.01, 0.05
"""Shares of requests that are abandoned or sent twice, and of episodes that are ended or reset."""
RESTART_INTERVAL_S = 40.0
"""Seconds between two restarts of the service."""
RETRY_TIMEOUT_S = 90.0
"""Seconds for which a client retries."""


class IsolationTrial:
    """Progress and results of the trial."""

    def __init__(self, requests: int, service: RunningService) -> None:
        self.requests_left, self.service = requests, service
        self.counts: Counter[str] = Counter()
        self.wrong_responses: list[str] = []

    def take(self) -> bool:
        """Return whether another request is to be sent."""
        self.requests_left -= 1
        return self.requests_left >= 0


class IsolationClient:
    """Environments of one client, with their episodes."""

    def __init__(self, index: int, address: tuple[str, int], trial: IsolationTrial) -> None:
        self.client_id, self.trial = f"client{index}", trial
        self.rng = random.Random(index)
        self.connections = [WireConnection(*address), WireConnection(*address)]
        self.videos = [HashedEpisode(env, np.random.default_rng([index, env])) for env in range(ENVS_PER_CLIENT)]
        self.num_episodes = [0] * ENVS_PER_CLIENT

    async def play(self) -> None:
        """Send requests until the trial ends."""
        while self.trial.take():
            selected = self.rng.sample(self.videos, self.rng.randint(1, 4))
            starting = [video for video in selected if video.episode < 0 or self.rng.random() < RESET_RATE]
            running_episodes = [video for video in selected if video not in starting]
            if starting:
                await self.reset(starting)
            if running_episodes:
                await self.step(running_episodes)
            if self.rng.random() < END_RATE:
                await self.end(self.rng.choice(self.videos))
        for connection in self.connections:
            connection.close()

    async def reset(self, videos: list[HashedEpisode]) -> None:
        """Start new episodes."""
        for video in videos:
            self.num_episodes[video.env] += 1
            video.frames = video.frames[:0]
        episode = [self.num_episodes[video.env] for video in videos]
        header = request_header(self.client_id, videos, episode, instructions=[LIFT_INSTRUCTION] * len(videos))
        if await self.request("/v1/reset", header, videos) is not None:
            for video, episode_number in zip(videos, episode, strict=True):
                video.record_reset(episode_number)

    async def step(self, videos: list[HashedEpisode]) -> None:
        """Send one more frame per episode."""
        steps = [video.step + 1 for video in videos]
        header = request_header(self.client_id, videos, [video.episode for video in videos], steps=steps)
        values = await self.request("/v1/step", header, videos)
        for video, value in zip(videos, values or [], strict=bool(values)):
            if not video.check_progress(value):
                self.trial.wrong_responses.append(f"{self.client_id}, environment {video.env}, step {video.step}")

    async def end(self, video: HashedEpisode) -> None:
        """End an episode."""
        header = {"client_id": self.client_id, "env_ids": [video.env], "episode_ids": [max(video.episode, 0)]}
        await self.request("/v1/end", header, [])
        video.episode = -1

    async def request(self, path: str, header: dict, videos: list[HashedEpisode]) -> list[float] | None:
        """Send a request until it is answered. Returns None if the service has lost the episodes."""
        body = b"".join(video.next_frame().tobytes() for video in videos)
        deadline = time.monotonic() + RETRY_TIMEOUT_S
        while True:
            try:
                answer = await self.request_once(path, header, body)
            except (ConnectionBrokenError, TimeoutError) as error:
                self.trial.counts[type(error).__name__] += 1
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(self.rng.uniform(0, 0.2))
                continue
            self.trial.counts[str(answer.status)] += 1
            if answer.status == 200:
                return progress_values(answer) if videos else []
            if answer.status == 410:
                for video in videos:
                    video.episode = -1
                return None
            if answer.status not in (409, 429, 503) or time.monotonic() > deadline:
                raise RuntimeError(f"{path} {header}: {answer.status} {answer.body!r}")
            await asyncio.sleep(self.rng.uniform(0, 0.05))

    async def request_once(self, path: str, header: dict, body: bytes):  # type: ignore[no-untyped-def]
        """Send a request once. Some requests are abandoned, some are sent twice concurrently."""
        first, second = self.connections
        if self.rng.random() < ABANDON_RATE:
            async with asyncio.timeout(self.rng.uniform(0, 0.01)):
                return await first.request(path, header, body)
        if self.rng.random() >= DUPLICATE_RATE:
            return await first.request(path, header, body)
        results = await asyncio.gather(
            first.request(path, header, body), second.request(path, header, body), return_exceptions=True
        )
        answers = [answer for answer in results if not isinstance(answer, BaseException)]
        successful = [answer for answer in answers if answer.status == 200]
        if len(successful) == 2 and body and successful[0].body != successful[1].body:
            self.trial.wrong_responses.append(f"{self.client_id}: two responses to one request")
        if not answers:
            raise ConnectionBrokenError("both connections")
        return (successful or answers)[0]


async def restart_service(command: list[str], trial: IsolationTrial, interval_s: float) -> None:
    """Restart the service periodically, after SIGTERM or SIGKILL."""
    rng = random.Random(0)
    while True:
        await asyncio.sleep(interval_s)
        signal_kind = rng.choice([signal.SIGTERM, signal.SIGKILL])
        trial.service.process.send_signal(signal_kind)
        await asyncio.to_thread(trial.service.process.wait, 60)
        trial.counts[f"restarts by {signal_kind.name}"] += 1
        trial.service = await asyncio.to_thread(start_service, command)


async def run(args: argparse.Namespace) -> IsolationTrial:
    """Run all clients concurrently."""
    command = [*HASH_SERVICE_COMMAND, "--port", str(free_port())]
    service = await asyncio.to_thread(start_service, command)
    trial = IsolationTrial(args.requests, service)
    restart_task = asyncio.create_task(restart_service(command, trial, args.every))
    clients = [IsolationClient(index, service.address, trial) for index in range(args.clients)]

    async def log_progress() -> None:
        while True:
            await asyncio.sleep(30)
            logging.info("%d left, %s, %d wrong", trial.requests_left, dict(trial.counts), len(trial.wrong_responses))

    log_task = asyncio.create_task(log_progress())
    try:
        await asyncio.gather(*(client.play() for client in clients))
    finally:
        log_task.cancel()
        restart_task.cancel()
        trial.service.process.terminate()
    return trial


def report(trial: IsolationTrial, args: argparse.Namespace, elapsed_s: float) -> str:
    """Return the section as Markdown."""
    counts = ", ".join(f"{name}: {count}" for name, count in sorted(trial.counts.items()))
    return "\n".join(
        [
            "## Isolation of environments",
            "",
            f"`python benchmarks/serve_hashes.py --requests {args.requests}`: {args.clients} clients of "
            f"{ENVS_PER_CLIENT} environments each, random batches; {ABANDON_RATE:.0%} of requests are abandoned and "
            f"retried, {DUPLICATE_RATE:.0%} are sent twice; the service is restarted every {args.every:.0f} s. "
            f"Responses that differ from the hash of their environment's frames: **{len(trial.wrong_responses)}**. "
            f"{elapsed_s:.0f} s. Attempts by status, and other events: {counts}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000, help="requests of all clients")
    parser.add_argument("--clients", type=int, default=64, help="concurrent clients")
    parser.add_argument("--every", type=float, default=RESTART_INTERVAL_S, help="seconds between two restarts")
    parser.add_argument("--page", type=Path, default=Path("docs/results/reliability.md"), help="page with the section")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    start = time.monotonic()
    trial = asyncio.run(run(args))
    write_section(args.page, "serve hashes", report(trial, args, time.monotonic() - start), title="Reliability")
    if trial.wrong_responses:
        raise SystemExit("\n".join(trial.wrong_responses[:10]))


if __name__ == "__main__":
    main()
