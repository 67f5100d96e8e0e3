"""Replicas under load: python benchmarks/serve_ray.py

`embodied-rm serve ray.replicas=1 ray.most=2` with the model in the box, and clients that are each a run of its own and
play films that are known: what must be said of every frame was said by the service alone. Ray Serve starts the second
replica when there is much to do; then one of the two is killed, as often as is wanted. Writes the section of
docs/scale.md.
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
from serving import REAL, TOLERANCE, Running, free_port, running
from wire_client import LIFT

from embodied_rm.cli.benchmarks import put_section
from embodied_rm.serve.client import tracks
from embodied_rm.serve.client.reward_client import RewardClient

FILMS, FRAMES, SIDE = 4, 12, 64
REPLICA = b"ray::ServeReplica:embodied_rm"


@dataclass
class Seen:
    """What came of the requests of all clients."""

    answered: int = 0
    wrong: int = 0
    failed: list[str] = field(default_factory=list)
    """Requests that ended in an exception."""
    retried: int = 0


def films() -> np.ndarray:
    """[FILMS, FRAMES, H, W, 3]."""
    return np.random.default_rng(0).integers(0, 256, (FILMS, FRAMES, SIDE, SIDE, 3), np.uint8)


def played(client: RewardClient, env: int, episode: int, film: np.ndarray) -> np.ndarray:
    """What is said of a film, [FRAMES]."""
    judged, track = tracks.begin(client, [env], [episode], [LIFT], {"front": film[:1]}, keep=True)
    told = [judged.value[0]]
    for frame in film[1:]:
        judged, track = tracks.advance(client, track, {"front": frame[None]})
        told.append(judged.value[0])
    client.end([env], [episode])
    return np.array(told)


def known(shown: np.ndarray) -> np.ndarray:
    """What the service alone says of the films, [FILMS, FRAMES]."""
    with running(REAL) as service, RewardClient(service.url) as client:
        return np.stack([played(client, 0, i, film) for i, film in enumerate(shown)])


def ask(url: str, shown: np.ndarray, expected: np.ndarray, seen: Seen, end: Event) -> None:
    """A run: one film after the other until the end."""
    client, episode = RewardClient(url, patience=120), 0
    try:
        while not end.is_set():
            which = episode % FILMS
            told = played(client, 0, episode, shown[which])
            seen.wrong += int((np.abs(told - expected[which]) > TOLERANCE).sum())
            seen.answered += FRAMES
            episode += 1
    except Exception as fault:  # the thread ends, and the table says so
        seen.failed.append(f"{type(fault).__name__}: {fault}")
    seen.retried += client.retried


def replicas() -> list[int]:
    """Processes of the replicas that live."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                said = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if said.startswith(REPLICA):
                found.append(int(folder.name))
    return sorted(found)


def replaced(gone: int) -> bool:
    """Whether there are two replicas, and this one is none of them."""
    living = replicas()
    return len(living) == 2 and gone not in living


def wait_for(true: Callable[[], bool], seconds: float) -> float:
    """Seconds until it is true. Raises `TimeoutError` where it is not in time."""
    began = time.perf_counter()
    while not true():
        if time.perf_counter() - began > seconds:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.2)
    return time.perf_counter() - began


def trial(service: Running, clients: int, seconds: float, kills: int) -> tuple[list[str], Seen]:
    """Rows of the table: what was done, how long it took, how many frames a second were judged then."""
    shown = films()
    expected, seen, end, rows = known(shown), Seen(), Event(), []
    threads = [Thread(target=ask, args=(service.url, shown, expected, seen, end)) for _ in range(clients)]
    for thread in threads:
        thread.start()

    def during(what: str, took: float | None) -> None:
        before, began = seen.answered, time.perf_counter()
        time.sleep(seconds)
        rate = (seen.answered - before) / (time.perf_counter() - began)
        rows.append(f"| {what} | {'' if took is None else f'{took:.0f}'} | {len(replicas())} | {rate:.0f} |")
        logging.info(rows[-1])

    grew = wait_for(lambda: len(replicas()) == 2, 180)
    during("as they are asked for much, a second one", grew)
    for _ in range(kills):
        victim = replicas()[0]
        os.kill(victim, signal.SIGKILL)
        took = wait_for(partial(replaced, victim), 180)
        during("one killed, until there are two again", took)
    end.set()
    for thread in threads:
        thread.join()
    return rows, seen


def report(rows: list[str], seen: Seen, clients: int) -> str:
    """The section."""
    return "\n".join(
        [
            "## Replicas under load",
            "",
            f"`python benchmarks/serve_ray.py`: {clients} runs of one environment each, by Ray Serve, 1 replica to 2. "
            f"{seen.answered} frames answered, {seen.wrong} of them not as by the service alone, {len(seen.failed)} "
            f"requests that came to nothing, {seen.retried} sent again.",
            "",
            "| what | seconds | replicas then | frames/s after |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20, help="of load after each event")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--page", type=Path, default=Path("docs/scale.md"), help="whose section is written")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    command = [*REAL, f"port={free_port()}", "ray.replicas=1", "ray.most=2", "ray.ongoing=2", "ray.cpus=0.5"]
    with running(command) as service:
        rows, seen = trial(service, args.clients, args.seconds, args.kills)
    put_section(args.page, "serve ray", report(rows, seen, args.clients), title="Scale")
    if seen.failed or seen.wrong:
        raise SystemExit("\n".join(seen.failed) or f"{seen.wrong} answers were wrong")


if __name__ == "__main__":
    main()
