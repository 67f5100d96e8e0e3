"""A service that is used for an hour: python benchmarks/serve_soak.py

The model in the box. Environments step at a pace of their own, well below what the service can do; each plays films
that were judged before, so that it is known what must be said of them. Beside them others send nonsense, begin what
they never end, and hang up. Once a second it is written down what the service holds. Writes the section of
docs/reliability.md.
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
from serving import REAL, TOLERANCE, Running, running
from wire_client import LIFT, VIEWS, Connection, frames_header, values_of

from embodied_rm.cli.benchmarks import put_section
from embodied_rm.serve.client.wire import LENGTH

ENVIRONMENTS, FILMS, FRAMES, SIDE = 8, 4, 25, 64
PACE = 0.25
"""Seconds between two frames of an environment: 32 requests a second."""
IDLE = 30
"""Seconds after which an episode that nobody ends is forgotten: often, so that it happens often."""
MIB = 1 << 20
SLOPE, LATER = 1.0, 1.1
"""What the issue asks for: MiB in ten minutes at most; the last ten minutes' p99 against the first's."""


@dataclass
class Seen:
    """What was written down."""

    times: list[float] = field(default_factory=list)
    """When an answer came, seconds."""
    took: list[float] = field(default_factory=list)
    wrong: int = 0
    refused: int = 0
    held: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds, bytes in memory, descriptors."""


async def played(connection: Connection, env: int, episode: int, film: np.ndarray, seen: Seen, began: float) -> Any:
    """What is said of a film, frame by frame, at the pace."""
    told = []
    for step, frame in enumerate(film):
        more: dict[str, Any] = {"step": [step]} if step else {"instruction": [LIFT]}
        start = time.perf_counter()
        answer = await connection.ask(
            "/v1/advance" if step else "/v1/begin",
            frames_header("soak", [env], [episode], SIDE, **more),
            frame.tobytes(),
        )
        now = time.perf_counter()
        assert answer.status == 200, answer.body
        seen.times.append(now - began)
        seen.took.append(now - start)
        told += values_of(answer)
        await asyncio.sleep(max(0.0, PACE - (now - start)))
    await connection.ask("/v1/end", {"run": "soak", "env": [env], "episode": [episode]}, b"")
    return np.array(told)


async def environment(
    service: Running, env: int, films: np.ndarray, known: np.ndarray, seen: Seen, until: float, began: float
) -> None:
    """Episodes, one after the other, on a connection that is new every few of them."""
    await asyncio.sleep(PACE * env / ENVIRONMENTS)
    connection = Connection(*service.address)
    for episode in itertools.count(1):
        if time.perf_counter() > until:
            break
        which = (env + episode) % len(films)
        told = await played(connection, env, episode, films[which], seen, began)
        seen.wrong += int((np.abs(told - known[which]) > TOLERANCE).sum())
        if episode % 5 == 0:
            connection.close()
    connection.close()


async def nuisance(service: Running, film: np.ndarray, seen: Seen, until: float) -> None:
    """Four of them a second, in turn: no JSON, another shape than promised, an episode that is never ended, and one
    whose client hangs up in the middle of a request."""
    for number in itertools.count():
        if time.perf_counter() > until:
            break
        connection, kind = Connection(*service.address), number % 4
        head = frames_header(f"other{number}", [0], [0], SIDE, instruction=[LIFT])
        if kind == 0:
            answer = await connection.ask("/v1/begin", {"run": 7}, b"\0" * 100)
            seen.refused += answer.status == 422
        elif kind == 1:
            answer = await connection.ask("/v1/begin", head, film[0].tobytes()[:-1])
            seen.refused += answer.status == 422
        elif kind == 2:
            await connection.ask("/v1/begin", head, film[0].tobytes())
        else:
            _, writer = await asyncio.open_connection(*service.address)
            writer.write(f"POST /v1/begin HTTP/1.1\r\nhost: x\r\n{LENGTH}: 9\r\ncontent-length: 99\r\n\r\n{{".encode())
            await writer.drain()
            writer.transport.abort()
        connection.close()
        await asyncio.sleep(0.25)


async def watch(service: Running, seen: Seen, until: float, began: float) -> None:
    """Once a second, what the service holds."""
    while (now := time.perf_counter()) < until:
        seen.held.append((now - began, service.memory(), service.descriptors()))
        if len(seen.held) % 60 == 0:
            logging.info(
                "%d min: %.1f MiB, %d descriptors", len(seen.held) // 60, seen.held[-1][1] / MIB, seen.held[-1][2]
            )
        await asyncio.sleep(1)


async def soak(service: Running, seconds: float) -> Seen:
    """All of it at once."""
    rng = np.random.default_rng(0)
    films = rng.integers(0, 256, (FILMS, FRAMES, len(VIEWS), SIDE, SIDE, 3), np.uint8)
    connection = Connection(*service.address)
    asked = [await played(connection, 1000, i, film, Seen(), 0.0) for i, film in enumerate(films)]
    known, seen = np.stack(asked), Seen()
    connection.close()
    began = time.perf_counter()
    until = began + seconds
    players = [environment(service, env, films, known, seen, until, began) for env in range(ENVIRONMENTS)]
    await asyncio.gather(*players, nuisance(service, films[0], seen, until), watch(service, seen, until, began))
    return seen


@dataclass(frozen=True)
class Part:
    """Of a part of the time."""

    late: float
    """p99, seconds."""
    memory: float
    """Mean, MiB."""
    descriptors: tuple[int, int, int]
    """Fewest, median and most."""


def part(seen: Seen, start: float, stop: float) -> Part:
    """What was seen between two times, seconds."""
    times, took, held = np.array(seen.times), np.array(seen.took), np.array(seen.held)
    here = held[(held[:, 0] >= start) & (held[:, 0] < stop)]
    late = float(np.quantile(took[(times >= start) & (times < stop)], 0.99))
    few, median, most = np.quantile(here[:, 2], (0, 0.5, 1), method="nearest").astype(int).tolist()
    return Part(late, float(here[:, 1].mean()) / MIB, (few, median, most))


def parts_of(seen: Seen, seconds: float) -> list[Part]:
    """Six of them."""
    return [part(seen, i * seconds / 6, (i + 1) * seconds / 6) for i in range(6)]


def slope_of(seen: Seen) -> float:
    """MiB in ten minutes, by least squares over all of the time."""
    held = np.array(seen.held)
    return float(np.polyfit(held[:, 0], held[:, 1], 1)[0]) * 600 / MIB


def missed(seen: Seen, seconds: float) -> list[str]:
    """What is not as it was asked for."""
    parts = parts_of(seen, seconds)
    found = {
        f"{seen.wrong} answers were wrong": seen.wrong > 0,
        f"memory rises by {slope_of(seen):.2f} MiB in ten minutes": slope_of(seen) > SLOPE,
        "the last sixth's p99 is above the first's": parts[-1].late > LATER * parts[0].late,
        "descriptors are not as many at the end": parts[-1].descriptors[1] != parts[0].descriptors[1],
    }
    return [words for words, is_so in found.items() if is_so]


def report(seen: Seen, seconds: float) -> str:
    """The section."""
    parts = parts_of(seen, seconds)
    rows = []
    for i, each in enumerate(parts):
        few, median, most = each.descriptors
        rows.append(f"| {i + 1} | {1e3 * each.late:.1f} | {each.memory:.1f} | {median} ({few} to {most}) |")
    return "\n".join(
        [
            "## Soak",
            "",
            f"`python benchmarks/serve_soak.py`: the model in the box for {seconds / 60:.0f} minutes, "
            f"{ENVIRONMENTS} environments at a pace, {len(seen.took)} answers; beside them {seen.refused} refusals, "
            f"episodes that are never ended and clients that hang up. Answers that were not as those of the same film "
            f"before: {seen.wrong}. Memory rises by {slope_of(seen):+.2f} MiB in ten minutes (asked: {SLOPE:g} at "
            f"most); p99 of the last sixth is {parts[-1].late / parts[0].late:.2f} of the first's (asked: {LATER:g} "
            "at most).",
            "",
            "| sixth | p99, ms | memory, MiB | descriptors: median (range) |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--page", type=Path, default=Path("docs/reliability.md"), help="whose section is written")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with running([*REAL, f"limits.idle_s={IDLE}"]) as service:
        seen = asyncio.run(soak(service, args.seconds))
    put_section(args.page, "serve soak", report(seen, args.seconds), title="Reliability")
    if bad := missed(seen, args.seconds):
        raise SystemExit("\n".join(bad))


if __name__ == "__main__":
    main()
