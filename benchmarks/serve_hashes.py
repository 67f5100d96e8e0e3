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
from serving import KNOWN, Running, free_port, started
from wire_client import LIFT, BrokenError, Connection, Film, header_of, values_of

from embodied_rm.cli.benchmarks import put_section

ENVS = 8
"""Of a client."""
LEAVE, TWICE, END, BEGIN = 0.01, 0.01, 0.01, 0.05
"""Shares of requests whose sender leaves, that are sent twice, and of episodes that are ended and begun."""
RESTART = 40.0
"""Seconds between two deaths of the service."""
PATIENCE = 90.0
"""Seconds for which a client waits for a service that is away."""


class Trial:
    """What has happened so far."""

    def __init__(self, requests: int, service: Running) -> None:
        self.left, self.service = requests, service
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def take(self) -> bool:
        """Whether there is another request to be made."""
        self.left -= 1
        return self.left >= 0


class Client:
    """Some environments, and their films."""

    def __init__(self, number: int, address: tuple[str, int], trial: Trial) -> None:
        self.run, self.trial = f"client{number}", trial
        self.random = random.Random(number)
        self.connections = [Connection(*address), Connection(*address)]
        self.films = [Film(env, np.random.default_rng([number, env])) for env in range(ENVS)]
        self.begun = [0] * ENVS

    async def play(self) -> None:
        """Ask until enough was asked."""
        while self.trial.take():
            some = self.random.sample(self.films, self.random.randint(1, 4))
            new = [film for film in some if film.episode < 0 or self.random.random() < BEGIN]
            going = [film for film in some if film not in new]
            if new:
                await self.begin(new)
            if going:
                await self.advance(going)
            if self.random.random() < END:
                await self.end(self.random.choice(self.films))
        for connection in self.connections:
            connection.close()

    async def begin(self, films: list[Film]) -> None:
        """New episodes of these."""
        for film in films:
            self.begun[film.env] += 1
            film.frames = film.frames[:0]
        episode = [self.begun[film.env] for film in films]
        header = header_of(self.run, films, episode, instruction=[LIFT] * len(films))
        if await self.asked("/v1/begin", header, films) is not None:
            for film, number in zip(films, episode, strict=True):
                film.begun(number)

    async def advance(self, films: list[Film]) -> None:
        """One more frame of these."""
        steps = [film.step + 1 for film in films]
        header = header_of(self.run, films, [film.episode for film in films], step=steps)
        values = await self.asked("/v1/advance", header, films)
        for film, value in zip(films, values or [], strict=bool(values)):
            if not film.judged(value):
                self.trial.wrong.append(f"{self.run}, environment {film.env}, step {film.step}")

    async def end(self, film: Film) -> None:
        """An episode is over."""
        header = {"run": self.run, "env": [film.env], "episode": [max(film.episode, 0)]}
        await self.asked("/v1/end", header, [])
        film.episode = -1

    async def asked(self, path: str, header: dict, films: list[Film]) -> list[float] | None:
        """The answer, however often it takes; None where the service knows nothing of these episodes."""
        blob = b"".join(film.show().tobytes() for film in films)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                answer = await self.once(path, header, blob)
            except (BrokenError, TimeoutError) as fault:
                self.trial.counts[type(fault).__name__] += 1
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(self.random.uniform(0, 0.2))
                continue
            self.trial.counts[str(answer.status)] += 1
            if answer.status == 200:
                return values_of(answer) if films else []
            if answer.status == 410:
                for film in films:
                    film.episode = -1
                return None
            if answer.status not in (409, 429, 503) or time.monotonic() > until:
                raise RuntimeError(f"{path} {header}: {answer.status} {answer.body!r}")
            await asyncio.sleep(self.random.uniform(0, 0.05))

    async def once(self, path: str, header: dict, blob: bytes):  # type: ignore[no-untyped-def]
        """One attempt; some are given up before they are answered, and some made twice at once."""
        one, other = self.connections
        if self.random.random() < LEAVE:
            async with asyncio.timeout(self.random.uniform(0, 0.01)):
                return await one.ask(path, header, blob)
        if self.random.random() >= TWICE:
            return await one.ask(path, header, blob)
        told = await asyncio.gather(one.ask(path, header, blob), other.ask(path, header, blob), return_exceptions=True)
        answers = [answer for answer in told if not isinstance(answer, BaseException)]
        good = [answer for answer in answers if answer.status == 200]
        if len(good) == 2 and blob and good[0].body != good[1].body:
            self.trial.wrong.append(f"{self.run}: two answers to one request")
        if not answers:
            raise BrokenError("both")
        return (good or answers)[0]


async def restarts(command: list[str], trial: Trial, every: float) -> None:
    """End the service now and then, kindly and not, and start it again at the same place."""
    choice = random.Random(0)
    while True:
        await asyncio.sleep(every)
        how = choice.choice([signal.SIGTERM, signal.SIGKILL])
        trial.service.process.send_signal(how)
        await asyncio.to_thread(trial.service.process.wait, 60)
        trial.counts[f"restarts by {how.name}"] += 1
        trial.service = await asyncio.to_thread(started, command)


async def run(args: argparse.Namespace) -> Trial:
    """All clients at once."""
    command = [*KNOWN, "--port", str(free_port())]
    service = await asyncio.to_thread(started, command)
    trial = Trial(args.requests, service)
    deaths = asyncio.create_task(restarts(command, trial, args.every))
    clients = [Client(number, service.address, trial) for number in range(args.clients)]

    async def told() -> None:
        while True:
            await asyncio.sleep(30)
            logging.info("%d left, %s, %d wrong", trial.left, dict(trial.counts), len(trial.wrong))

    watch = asyncio.create_task(told())
    try:
        await asyncio.gather(*(client.play() for client in clients))
    finally:
        watch.cancel()
        deaths.cancel()
        trial.service.process.terminate()
    return trial


def report(trial: Trial, args: argparse.Namespace, seconds: float) -> str:
    """The section."""
    counts = ", ".join(f"{name}: {count}" for name, count in sorted(trial.counts.items()))
    return "\n".join(
        [
            "## Answers to the wrong environment",
            "",
            f"`python benchmarks/serve_hashes.py --requests {args.requests}`: {args.clients} clients of {ENVS} "
            f"environments, random batches of them; {LEAVE:.0%} of requests left by their sender and asked again, "
            f"{TWICE:.0%} sent twice at once, episodes begun and ended; the service killed or told to end every "
            f"{args.every:.0f} s. Answers that are not the hash of what that environment was shown: "
            f"**{len(trial.wrong)}**. {seconds:.0f} s. Attempts by status, and what else happened: {counts}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000, help="of all clients")
    parser.add_argument("--clients", type=int, default=64, help="at once")
    parser.add_argument("--every", type=float, default=RESTART, help="seconds between two deaths")
    parser.add_argument("--page", type=Path, default=Path("docs/reliability.md"), help="whose section is written")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    began = time.monotonic()
    trial = asyncio.run(run(args))
    put_section(args.page, "serve hashes", report(trial, args, time.monotonic() - began), title="Reliability")
    if trial.wrong:
        raise SystemExit("\n".join(trial.wrong[:10]))


if __name__ == "__main__":
    main()
