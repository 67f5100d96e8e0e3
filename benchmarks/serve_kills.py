"""SIGTERM under load, and SIGKILL during a refinement: python benchmarks/serve_kills.py

SIGTERM: many clients send requests continuously; the service must answer all accepted requests before it ends.
SIGKILL: `embodied-rm refine judge=remote` must end with the same weights as an undisturbed run, although its service is
killed and restarted. Writes a section of docs/results/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cli_process import CLI_COMMAND
from serving import HASH_SERVICE_COMMAND, RunningService, free_port, start_service, subprocess_env
from wire_client import (
    LIFT_INSTRUCTION,
    ConnectionBrokenError,
    HashedEpisode,
    WireConnection,
    progress_values,
    request_header,
)

from embodied_rm.experiments.results_page import write_section
from embodied_rm.rl.learner.policy import load_policy

NUM_CLIENTS = 32
SMALL_ENV = ["env.num_envs=8", "env.image_size=32"]


async def terminate_under_load(seed: int) -> tuple[int, int, int, int]:
    """Return the numbers of responses sent, requests accepted, responses received, and wrong responses."""
    service = await asyncio.to_thread(start_service, [*HASH_SERVICE_COMMAND, "--pause", "0.005"])
    num_answers, num_wrong = 0, 0

    async def ask(index: int) -> None:
        nonlocal num_answers, num_wrong
        connection, video = WireConnection(*service.address), HashedEpisode(index, np.random.default_rng([seed, index]))
        try:
            while True:
                is_first = video.episode < 0
                fields: dict[str, Any] = (
                    {"instructions": [LIFT_INSTRUCTION]} if is_first else {"steps": [video.step + 1]}
                )
                header = request_header(f"r{index}", [video], [0], **fields)
                path = "/v1/reset" if is_first else "/v1/step"
                answer = await connection.request(path, header, video.next_frame().tobytes())
                num_answers += 1
                if answer.status != 200:
                    continue
                (value,) = progress_values(answer)
                if is_first:
                    video.record_reset(0)
                else:
                    num_wrong += not video.check_progress(value)
        except ConnectionBrokenError:
            return

    async def end() -> None:
        await asyncio.sleep(random.Random(seed).uniform(0.3, 1.0))
        service.process.send_signal(signal.SIGTERM)

    await asyncio.gather(end(), *(ask(index) for index in range(NUM_CLIENTS)))
    end_event = await asyncio.to_thread(read_end_event, service)
    return end_event["num_answered"], end_event["num_accepted"], num_answers, num_wrong


def read_end_event(service: RunningService) -> dict[str, Any]:
    """Return the service's shutdown event. Raises `RuntimeError` if the service ended without one."""
    code = service.process.wait(60)
    assert service.process.stdout is not None
    lines = [json.loads(line) for line in service.process.stdout if line.startswith("{")]
    end_events = [line for line in lines if line["event"] == "shutdown"]
    if code != 0 or not end_events:
        raise RuntimeError(f"the service ended with {code} and {lines[-3:]}")
    return end_events[0]


def clone_policy(root: Path) -> Path:
    """Clone a policy to refine."""
    run(
        [
            *CLI_COMMAND,
            "collect",
            "tasks=[lift_cube]",
            "num_successes=4",
            "num_failures=0",
            f"out={root / 'demos'}",
            *SMALL_ENV,
        ]
    )
    settings = ["task=lift_cube", f"data={root / 'demos'}", "num_demonstrations=4", "steps=50", "eval_episodes=2"]
    run([*CLI_COMMAND, "clone", *settings, f"out={root / 'cloned'}", *SMALL_ENV])
    return root / "cloned"


def run(command: list[str]) -> None:
    """Run a command to completion."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=subprocess_env())


def refine_command(policy: Path, out: Path, port: int, iterations: int) -> list[str]:
    """Return the refinement command with a remote reward model."""
    settings = ["task=lift_cube", f"policy={policy}", f"out={out}", f"iterations={iterations}", "rollout_steps=60"]
    settings += ["eval_episodes=0", "final_eval_episodes=2", "ppo.epochs=2", "ppo.minibatches=4", "judge=remote"]
    return [*CLI_COMMAND, "refine", *settings, f"judge.url=http://127.0.0.1:{port}", *SMALL_ENV]


def refine_with_kills(policy: Path, out: Path, iterations: int, max_kills: int) -> int:
    """Refine while the service is killed and restarted. Returns the number of kills."""
    port = free_port()
    command = [*CLI_COMMAND, "serve", f"port={port}"]
    service, num_kills = start_service(command), 0
    child = subprocess.Popen(
        refine_command(policy, out, port, iterations),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=subprocess_env(),
    )
    rng = random.Random(0)
    while child.poll() is None:
        if num_kills < max_kills and (out / "progress.jsonl").exists():
            time.sleep(rng.uniform(0.5, 3.0))
            if child.poll() is None:
                service.process.kill()
                service.process.wait()
                num_kills += 1
                logging.info("killed %d of %d", num_kills, max_kills)
                service = start_service(command)
        else:
            time.sleep(0.1)
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(60)
    if child.returncode:
        assert child.stderr is not None
        raise RuntimeError(child.stderr.read().decode()[-2000:])
    return num_kills


def equal_policies(first: Path, second: Path) -> bool:
    """Return whether two refined policies have identical weights."""
    pairs = zip(*(load_policy(folder / "policy").state_dict().values() for folder in (first, second)), strict=True)
    return all(torch.equal(first_weights, second_weights) for first_weights, second_weights in pairs)


def report(results: list[tuple[int, int, int, int]], num_kills: int, identical: bool, args: argparse.Namespace) -> str:
    """Return the section as Markdown."""
    answered, accepted, num_answers, num_wrong = (sum(column) for column in zip(*results, strict=True))
    policy_text = (
        "bitwise identical to that of an undisturbed run"
        if identical
        else "**different** from that of an undisturbed run"
    )
    return "\n".join(
        [
            "## SIGTERM and SIGKILL",
            "",
            f"`python benchmarks/serve_kills.py --terms {args.terms} --kills {args.kills}`.",
            "",
            f"- SIGTERM under load of {NUM_CLIENTS} clients, {len(results)} times: {accepted} requests accepted, "
            f"{answered} answered, {num_answers} responses received, {num_wrong} of them wrong.",
            f"- SIGKILL during `embodied-rm refine judge=remote`, {num_kills} times: the policy is {policy_text}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terms", type=int, default=20, help="number of SIGTERMs")
    parser.add_argument("--kills", type=int, default=10, help="number of SIGKILLs")
    parser.add_argument("--iterations", type=int, default=40, help="iterations of the refinement")
    parser.add_argument("--page", type=Path, default=Path("docs/results/reliability.md"), help="page with the section")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = []
    for index in range(args.terms):
        results.append(asyncio.run(terminate_under_load(index)))
        logging.info(
            "SIGTERM %d of %d: answered %d, accepted %d, received %d, wrong %d", index + 1, args.terms, *results[-1]
        )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        policy = clone_policy(root)
        refine_with_kills(policy, root / "whole", args.iterations, 0)
        num_kills = refine_with_kills(policy, root / "parts", args.iterations, args.kills)
        identical = equal_policies(root / "whole", root / "parts")
    write_section(args.page, "serve kills", report(results, num_kills, identical, args), title="Reliability")
    failures = [result for result in results if not result[0] == result[1] == result[2] or result[3]]
    if failures or not identical or num_kills < args.kills:
        raise SystemExit(f"{failures} {identical} {num_kills}")


if __name__ == "__main__":
    main()
