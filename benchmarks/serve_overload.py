"""A service that is asked for more than it can do: python benchmarks/serve_overload.py

The model takes a known time for a batch, as on a device that works by itself, so that there is a known load at which it
is busy; that and many times that are offered, whether answers come or not (open loop). Every answer is compared with
what that film must be told. Writes the section of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from serving import KNOWN, Running, running
from wire_client import LIFT, BrokenError, Connection, Film, header_of, values_of

from embodied_rm.cli.benchmarks import put_section

PAUSE, BATCH = 0.1, 4
"""Seconds of a batch, and requests in one."""
QUEUE = 16
LOADS = (1, 2, 5, 10, 50)
REFUSED, GOODPUT, GROWTH = 0.050, 0.95, 0.05
"""What the issue asks for: seconds at most for 99 of 100 refusals, share of the answers at 1x, growth of memory."""


@dataclass
class Client:
    """An episode on a connection of its own."""

    run: str
    connection: Connection
    film: Film


@dataclass
class Load:
    """What came of a load."""

    offered: int = 0
    outcomes: Counter[int] = field(default_factory=Counter)
    wrong: int = 0
    lost: int = 0
    unsent: int = 0
    """Requests that nobody was free to send."""
    refused: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)


async def ask(client: Client, load: Load) -> None:
    """The next step of an episode, or its first."""
    film, began = client.film, time.perf_counter()
    first = film.episode < 0
    step = {"instruction": [LIFT]} if first else {"step": [film.step + 1]}
    header = (
        header_of(client.run, [film], [0], **step) if first else header_of(client.run, [film], [film.episode], **step)
    )
    try:
        answer = await client.connection.ask("/v1/begin" if first else "/v1/advance", header, film.show().tobytes())
    except BrokenError:
        load.lost += 1
        return
    took = time.perf_counter() - began
    load.outcomes[answer.status] += 1
    if answer.status != 200:
        load.refused.append(took)
        return
    load.answered.append(took)
    (value,) = values_of(answer)
    if first:
        film.begun(0)
    elif not film.judged(value):
        load.wrong += 1


async def offer(free: list[Client], rate: float, seconds: float) -> Load:
    """So many requests a second, whether answers come or not."""
    load, under_way = Load(), set[asyncio.Task[None]]()
    began = time.perf_counter()

    async def one(client: Client) -> None:
        await ask(client, load)
        free.append(client)

    while (now := time.perf_counter() - began) < seconds:
        while load.offered < now * rate:
            load.offered += 1
            if not free:
                load.unsent += 1
                continue
            task = asyncio.create_task(one(free.pop(0)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.sleep(0.002)
    await asyncio.gather(*under_way)
    return load


async def trial(service: Running, seconds: float) -> list[tuple[int, Load, int]]:
    """Load, what came of it, and the memory behind it."""
    host, port = service.address
    clients = [Client(f"run{i % 16}", Connection(host, port), Film(i, np.random.default_rng(i))) for i in range(400)]
    capacity = BATCH / PAUSE
    await offer(clients, capacity, 10)  # whatever is allocated once
    told = []
    for times in LOADS:
        load = await offer(clients, times * capacity, seconds)
        told.append((times, load, service.memory()))
        logging.info("%dx: %s", times, line(times, load, service.memory(), told[0]))
    return told


def line(times: int, load: Load, memory: int, one: tuple[int, Load, int]) -> str:
    """A row of the table."""
    slow = 1e3 * float(np.quantile(load.refused, 0.99)) if load.refused else 0.0
    good, first = load.outcomes[200], one[1].outcomes[200]
    other = {status: count for status, count in load.outcomes.items() if status not in (200, 429)}
    late, grown = 1e3 * float(np.quantile(load.answered, 0.99)), memory / one[2] - 1
    counts = f"| {times}x | {load.offered} | {good} | {load.outcomes[429]} | {load.lost} | {load.wrong} "
    more = f" {other} {load.unsent} unsent" if other or load.unsent else ""
    return f"{counts}| {good / first:.2f} | {slow:.0f} | {late:.0f} | {grown:+.1%} |{more}"


def report(told: list[tuple[int, Load, int]], seconds: float) -> str:
    """The section."""
    rows = [line(times, load, memory, told[0]) for times, load, memory in told]
    return "\n".join(
        [
            "## Overload",
            "",
            f"`python benchmarks/serve_overload.py`: a batch takes {1e3 * PAUSE:.0f} ms and has {BATCH} requests, "
            f"{QUEUE} may wait; {BATCH / PAUSE:.0f} requests a second and many times that, {seconds:.0f} s each, sent "
            "whether answers come or not, by 16 runs. Wrong: an answer that is not what that film must be told. Times: "
            f"99 of 100, ms. Asked: none lost or wrong, goodput >= {GOODPUT}, refusals in {1e3 * REFUSED:.0f}, memory "
            f"within {GROWTH:.0%}.",
            "",
            "| load | offered | answered | refused (429) | lost | wrong | goodput | refusals | answers | memory |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *rows,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of each load")
    parser.add_argument("--page", type=Path, default=Path("docs/reliability.md"), help="whose section is written")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    limits = f'{{"queue": {QUEUE}, "share": 1.0}}'
    with running([*KNOWN, "--pause", str(PAUSE), "--batch", str(BATCH), "--limits", limits]) as service:
        told = asyncio.run(trial(service, args.seconds))
    put_section(args.page, "serve overload", report(told, args.seconds), title="Reliability")


if __name__ == "__main__":
    main()
