"""Overload of the service: python benchmarks/serve_overload.py

The model takes a fixed time per batch, so the capacity is known. Requests are sent at multiples of it, independent of
the responses (open loop). Every response is compared with the expected progress. Writes a section of
docs/results/reliability.md.
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
from serving import HASH_SERVICE_COMMAND, RunningService, run_service
from wire_client import (
    LIFT_INSTRUCTION,
    ConnectionBrokenError,
    HashedEpisode,
    WireConnection,
    progress_values,
    request_header,
)

from embodied_rm.experiments.results_page import write_section

BATCH_S, BATCH_SIZE = 0.1, 4
"""Seconds per batch, and requests per batch."""
MAX_QUEUE = 16
LOAD_FACTORS = (1, 2, 5, 10, 50)
MAX_REJECT_S, MIN_GOODPUT, MAX_MEMORY_GROWTH = 0.050, 0.95, 0.05
"""Targets: seconds of the p99 of rejections, share of the responses at 1x load, growth of memory."""


@dataclass
class OverloadClient:
    """A client with one episode and its own connection."""

    run: str
    connection: WireConnection
    video: HashedEpisode


@dataclass
class LoadResult:
    """Results of one load."""

    num_offered: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    num_wrong: int = 0
    num_lost: int = 0
    num_unsent: int = 0
    """Requests without an idle client to send them."""
    rejected_s: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)


async def send_step(client: OverloadClient, result: LoadResult) -> None:
    """Send the first or next frame of an episode."""
    video, start = client.video, time.perf_counter()
    is_first = video.episode < 0
    fields = {"instructions": [LIFT_INSTRUCTION]} if is_first else {"steps": [video.step + 1]}
    header = (
        request_header(client.run, [video], [0], **fields)
        if is_first
        else request_header(client.run, [video], [video.episode], **fields)
    )
    try:
        answer = await client.connection.request(
            "/v1/reset" if is_first else "/v1/step", header, video.next_frame().tobytes()
        )
    except ConnectionBrokenError:
        result.num_lost += 1
        return
    duration = time.perf_counter() - start
    result.statuses[answer.status] += 1
    if answer.status != 200:
        result.rejected_s.append(duration)
        return
    result.answered_s.append(duration)
    (value,) = progress_values(answer)
    if is_first:
        video.record_reset(0)
    elif not video.check_progress(value):
        result.num_wrong += 1


async def offer_load(idle_clients: list[OverloadClient], rate: float, seconds: float) -> LoadResult:
    """Send requests at a fixed rate, independent of the responses (open loop)."""
    result, tasks = LoadResult(), set[asyncio.Task[None]]()
    start = time.perf_counter()

    async def send(client: OverloadClient) -> None:
        await send_step(client, result)
        idle_clients.append(client)

    while (elapsed := time.perf_counter() - start) < seconds:
        while result.num_offered < elapsed * rate:
            result.num_offered += 1
            if not idle_clients:
                result.num_unsent += 1
                continue
            task = asyncio.create_task(send(idle_clients.pop(0)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    return result


async def run_trial(service: RunningService, seconds: float) -> list[tuple[int, LoadResult, int]]:
    """Return load factor, results and the service's memory, per load."""
    host, port = service.address
    clients = [
        OverloadClient(f"run{i % 16}", WireConnection(host, port), HashedEpisode(i, np.random.default_rng(i)))
        for i in range(400)
    ]
    capacity = BATCH_SIZE / BATCH_S
    await offer_load(clients, capacity, 10)  # warm-up
    results = []
    for factor in LOAD_FACTORS:
        result = await offer_load(clients, factor * capacity, seconds)
        results.append((factor, result, service.memory_bytes()))
        logging.info("%dx: %s", factor, table_row(factor, result, service.memory_bytes(), results[0]))
    return results


def table_row(factor: int, result: LoadResult, memory: int, baseline: tuple[int, LoadResult, int]) -> str:
    """Return a row of the table."""
    reject_ms = 1e3 * float(np.quantile(result.rejected_s, 0.99)) if result.rejected_s else 0.0
    num_answered, baseline_answered = result.statuses[200], baseline[1].statuses[200]
    other_statuses = {status: count for status, count in result.statuses.items() if status not in (200, 429)}
    answer_ms, memory_growth = 1e3 * float(np.quantile(result.answered_s, 0.99)), memory / baseline[2] - 1
    num_rejected = result.statuses[429]
    counts = f"| {factor}x | {result.num_offered} | {num_answered} | {num_rejected} | {result.num_lost} "
    notes = f" {other_statuses} {result.num_unsent} unsent" if other_statuses or result.num_unsent else ""
    times = f"{reject_ms:.0f} | {answer_ms:.0f}"
    goodput = num_answered / baseline_answered
    return f"{counts}| {result.num_wrong} | {goodput:.2f} | {times} | {memory_growth:+.1%} |{notes}"


def report(results: list[tuple[int, LoadResult, int]], seconds: float) -> str:
    """Return the section as Markdown."""
    rows = [table_row(factor, result, memory, results[0]) for factor, result, memory in results]
    return "\n".join(
        [
            "## Overload",
            "",
            f"`python benchmarks/serve_overload.py`: a batch takes {1e3 * BATCH_S:.0f} ms and has "
            f"{BATCH_SIZE} requests, at most {MAX_QUEUE} are queued. Load: multiples of "
            f"{BATCH_SIZE / BATCH_S:.0f} requests/s, {seconds:.0f} s each, open loop, 16 clients. Wrong: responses "
            "with an unexpected progress. Times: p99 in ms. Targets: none lost or wrong, "
            f"goodput >= {MIN_GOODPUT}, rejections within {1e3 * MAX_REJECT_S:.0f} ms, memory within "
            f"{MAX_MEMORY_GROWTH:.0%}.",
            "",
            "| load | offered | answered | rejected (429) | lost | wrong | goodput "
            "| rejection p99, ms | response p99, ms | memory |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *rows,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="seconds per load")
    parser.add_argument("--page", type=Path, default=Path("docs/results/reliability.md"), help="page with the section")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    limits = f'{{"max_queue": {MAX_QUEUE}, "max_client_share": 1.0}}'
    with run_service(
        [*HASH_SERVICE_COMMAND, "--pause", str(BATCH_S), "--batch", str(BATCH_SIZE), "--limits", limits]
    ) as service:
        results = asyncio.run(run_trial(service, args.seconds))
    write_section(args.page, "serve overload", report(results, args.seconds), title="Reliability")


if __name__ == "__main__":
    main()
