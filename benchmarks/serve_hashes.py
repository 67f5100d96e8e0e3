"""Does anybody ever get the answer of another environment? python benchmarks/serve_hashes.py

The model answers a hash of all that an environment was shown. Many clients ask about random environments of theirs,
some leave in the middle of a request and ask again, some ask twice, episodes begin and end, and now and then the server
is killed or told to end, and started again. Every answer is compared with the hash. Writes the section of
docs/reliability.md.
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
"""Of a client."""
ABANDON_RATE, DUPLICATE_RATE, END_RATE, RESET_RATE = 0.01, 0.01, 0.01, 0.05
"""Shares of requests whose sender leaves, that are sent twice, and of episodes that are ended and begun."""
RESTART_INTERVAL_S = 40.0
"""Seconds between two deaths of the service."""
RETRY_TIMEOUT_S = 90.0
"""Seconds for which a client waits for a service that is away."""


class IsolationTrial:
    """What has happened so far."""

    def __init__(self, requests: int, service: RunningService) -> None:
        self.requests_left, self.service = requests, service
        self.counts: Counter[str] = Counter()
        self.wrong_answers: list[str] = []

    def take(self) -> bool:
        """Whether there is another request to be made."""
        self.requests_left -= 1
        return self.requests_left >= 0


class IsolationClient:
    """Some environments, and their videos."""

    def __init__(self, index: int, address: tuple[str, int], trial: IsolationTrial) -> None:
        self.run, self.trial = f"client{index}", trial
        self.rng = random.Random(index)
        self.connections = [WireConnection(*address), WireConnection(*address)]
        self.videos = [HashedEpisode(env, np.random.default_rng([index, env])) for env in range(ENVS_PER_CLIENT)]
        self.num_episodes = [0] * ENVS_PER_CLIENT

    async def play(self) -> None:
        """Ask until enough was asked."""
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
        """New episodes of these."""
        for video in videos:
            self.num_episodes[video.env] += 1
            video.frames = video.frames[:0]
        episode = [self.num_episodes[video.env] for video in videos]
        header = request_header(self.run, videos, episode, instructions=[LIFT_INSTRUCTION] * len(videos))
        if await self.request("/v1/reset", header, videos) is not None:
            for video, episode_number in zip(videos, episode, strict=True):
                video.record_reset(episode_number)

    async def step(self, videos: list[HashedEpisode]) -> None:
        """One more frame of these."""
        steps = [video.step + 1 for video in videos]
        header = request_header(self.run, videos, [video.episode for video in videos], steps=steps)
        values = await self.request("/v1/step", header, videos)
        for video, value in zip(videos, values or [], strict=bool(values)):
            if not video.check_progress(value):
                self.trial.wrong_answers.append(f"{self.run}, environment {video.env}, step {video.step}")

    async def end(self, video: HashedEpisode) -> None:
        """An episode is over."""
        header = {"client_id": self.run, "env_ids": [video.env], "episode_ids": [max(video.episode, 0)]}
        await self.request("/v1/end", header, [])
        video.episode = -1

    async def request(self, path: str, header: dict, videos: list[HashedEpisode]) -> list[float] | None:
        """The answer, however often it takes; None where the service knows nothing of these episodes."""
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
        """One attempt; some are given up before they are answered, and some made twice at once."""
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
            self.trial.wrong_answers.append(f"{self.run}: two answers to one request")
        if not answers:
            raise ConnectionBrokenError("both")
        return (successful or answers)[0]


async def restart_service(command: list[str], trial: IsolationTrial, interval_s: float) -> None:
    """End the service now and then, kindly and not, and start it again at the same place."""
    rng = random.Random(0)
    while True:
        await asyncio.sleep(interval_s)
        signal_kind = rng.choice([signal.SIGTERM, signal.SIGKILL])
        trial.service.process.send_signal(signal_kind)
        await asyncio.to_thread(trial.service.process.wait, 60)
        trial.counts[f"restarts by {signal_kind.name}"] += 1
        trial.service = await asyncio.to_thread(start_service, command)


async def run(args: argparse.Namespace) -> IsolationTrial:
    """All clients at once."""
    command = [*HASH_SERVICE_COMMAND, "--port", str(free_port())]
    service = await asyncio.to_thread(start_service, command)
    trial = IsolationTrial(args.requests, service)
    restart_task = asyncio.create_task(restart_service(command, trial, args.every))
    clients = [IsolationClient(index, service.address, trial) for index in range(args.clients)]

    async def told() -> None:
        while True:
            await asyncio.sleep(30)
            logging.info("%d left, %s, %d wrong", trial.requests_left, dict(trial.counts), len(trial.wrong_answers))

    log_task = asyncio.create_task(told())
    try:
        await asyncio.gather(*(client.play() for client in clients))
    finally:
        log_task.cancel()
        restart_task.cancel()
        trial.service.process.terminate()
    return trial


def report(trial: IsolationTrial, args: argparse.Namespace, elapsed_s: float) -> str:
    """The section."""
    counts = ", ".join(f"{name}: {count}" for name, count in sorted(trial.counts.items()))
    return "\n".join(
        [
            "## Answers to the wrong environment",
            "",
            f"`python benchmarks/serve_hashes.py --requests {args.requests}`: {args.clients} clients of {ENVS_PER_CLIENT} "
            f"environments, random batches of them; {ABANDON_RATE:.0%} of requests left by their sender and asked again, "
            f"{DUPLICATE_RATE:.0%} sent twice at once, episodes begun and ended; the service killed or told to end every "
            f"{args.every:.0f} s. Answers that are not the hash of what that environment was shown: "
            f"**{len(trial.wrong_answers)}**. {elapsed_s:.0f} s. Attempts by status, and what else happened: {counts}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000, help="of all clients")
    parser.add_argument("--clients", type=int, default=64, help="at once")
    parser.add_argument("--every", type=float, default=RESTART_INTERVAL_S, help="seconds between two deaths")
    parser.add_argument("--page", type=Path, default=Path("docs/reliability.md"), help="whose section is written")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    start = time.monotonic()
    trial = asyncio.run(run(args))
    write_section(args.page, "serve hashes", report(trial, args, time.monotonic() - start), title="Reliability")
    if trial.wrong_answers:
        raise SystemExit("\n".join(trial.wrong_answers[:10]))


if __name__ == "__main__":
    main()
