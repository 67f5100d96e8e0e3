"""A service that is told to end under load, and one that is killed while a policy is refined on it:
python benchmarks/serve_kills.py

SIGTERM: many clients ask without a pause; whatever the service let in it must have answered before it is gone.
SIGKILL: `embodied-rm refine judge=served`, whose service is killed and started again, must end with the weights of one
that nobody disturbed. Writes the section of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from serving import KNOWN, Running, environment, free_port, started
from wire_client import LIFT, BrokenError, Connection, Film, header_of, values_of

from embodied_rm.cli.benchmarks import put_section
from embodied_rm.rl.learner.policy import load_policy

CLIENTS = 32
ROBOT = [sys.executable, "-m", "embodied_rm"]
TINY = ["world.num_envs=8", "world.image_size=32"]


async def ended_under_load(seed: int) -> tuple[int, int, int, int]:
    """Answers that the service says it gave, that it let in, that clients got, and that were wrong."""
    service = await asyncio.to_thread(started, [*KNOWN, "--pause", "0.005"])
    got, wrong = 0, 0

    async def ask(number: int) -> None:
        nonlocal got, wrong
        connection, film = Connection(*service.address), Film(number, np.random.default_rng([seed, number]))
        try:
            while True:
                first = film.episode < 0
                more: dict[str, Any] = {"instruction": [LIFT]} if first else {"step": [film.step + 1]}
                header = header_of(f"r{number}", [film], [0], **more)
                path = "/v1/begin" if first else "/v1/advance"
                answer = await connection.ask(path, header, film.show().tobytes())
                got += 1
                if answer.status != 200:
                    continue
                (value,) = values_of(answer)
                if first:
                    film.begun(0)
                else:
                    wrong += not film.judged(value)
        except BrokenError:
            return

    async def end() -> None:
        await asyncio.sleep(random.Random(seed).uniform(0.3, 1.0))
        service.process.send_signal(signal.SIGTERM)

    await asyncio.gather(end(), *(ask(number) for number in range(CLIENTS)))
    last = await asyncio.to_thread(last_words, service)
    return last["answered"], last["accepted"], got, wrong


def last_words(service: Running) -> dict[str, Any]:
    """What the service wrote as it ended. Raises `RuntimeError` where it did not end well."""
    code = service.process.wait(60)
    assert service.process.stdout is not None
    lines = [json.loads(line) for line in service.process.stdout if line.startswith("{")]
    ends = [line for line in lines if line["event"] == "ended"]
    if code != 0 or not ends:
        raise RuntimeError(f"the service ended with {code} and {lines[-3:]}")
    return ends[0]


def cloned(root: Path) -> Path:
    """A policy to refine."""
    run([*ROBOT, "collect", "tasks=[lift_cube]", "successes=4", "failures=0", f"out={root / 'demos'}", *TINY])
    words = ["task=lift_cube", f"data={root / 'demos'}", "demonstrations=4", "steps=50", "episodes=2"]
    run([*ROBOT, "clone", *words, f"out={root / 'cloned'}", *TINY])
    return root / "cloned"


def run(words: list[str]) -> None:
    """Run a command to its end."""
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment())


def refining(policy: Path, out: Path, port: int, iterations: int) -> list[str]:
    """The refinement on a service."""
    words = ["task=lift_cube", f"policy={policy}", f"out={out}", f"iterations={iterations}", "rollout_steps=60"]
    words += ["watched=0", "episodes=2", "ppo.epochs=2", "ppo.minibatches=4", "judge=served"]
    return [*ROBOT, "refine", *words, f"judge.url=http://127.0.0.1:{port}", *TINY]


def refined_beside_deaths(policy: Path, out: Path, iterations: int, kills: int) -> int:
    """Refine while the service is killed and started again; how often it was."""
    port = free_port()
    command = [*ROBOT, "serve", f"port={port}"]
    service, deaths = started(command), 0
    child = subprocess.Popen(
        refining(policy, out, port, iterations), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment()
    )
    chance = random.Random(0)
    while child.poll() is None:
        if deaths < kills and (out / "progress.jsonl").exists():
            time.sleep(chance.uniform(0.5, 3.0))
            if child.poll() is None:
                service.process.kill()
                service.process.wait()
                deaths += 1
                logging.info("killed %d of %d", deaths, kills)
                service = started(command)
        else:
            time.sleep(0.1)
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(60)
    if child.returncode:
        assert child.stderr is not None
        raise RuntimeError(child.stderr.read().decode()[-2000:])
    return deaths


def same(one: Path, other: Path) -> bool:
    """Whether two refined policies are, to the last bit."""
    pairs = zip(*(load_policy(folder / "policy").state_dict().values() for folder in (one, other)), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def report(told: list[tuple[int, int, int, int]], deaths: int, alike: bool, args: argparse.Namespace) -> str:
    """The section."""
    answered, accepted, got, wrong = (sum(column) for column in zip(*told, strict=True))
    whose = (
        "that of an undisturbed run, to the last bit" if alike else "**another one** than that of an undisturbed run"
    )
    return "\n".join(
        [
            "## Told to end, and killed",
            "",
            f"`python benchmarks/serve_kills.py --terms {args.terms} --kills {args.kills}`.",
            "",
            f"- SIGTERM under the load of {CLIENTS} clients, {len(told)} times: {accepted} requests were let in, "
            f"{answered} of them answered, {got} answers arrived, {wrong} of them wrong.",
            f"- SIGKILL during `embodied-rm refine judge=served`, {deaths} times: the policy is {whose}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terms", type=int, default=20, help="times that it is told to end")
    parser.add_argument("--kills", type=int, default=10, help="times that it is killed")
    parser.add_argument("--iterations", type=int, default=40, help="of the refinement")
    parser.add_argument("--page", type=Path, default=Path("docs/reliability.md"), help="whose section is written")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    told = []
    for number in range(args.terms):
        told.append(asyncio.run(ended_under_load(number)))
        logging.info(
            "told to end %d of %d: answered %d, let in %d, arrived %d, wrong %d", number + 1, args.terms, *told[-1]
        )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        policy = cloned(root)
        refined_beside_deaths(policy, root / "whole", args.iterations, 0)
        deaths = refined_beside_deaths(policy, root / "parts", args.iterations, args.kills)
        alike = same(root / "whole", root / "parts")
    put_section(args.page, "serve kills", report(told, deaths, alike, args), title="Reliability")
    bad = [one for one in told if not one[0] == one[1] == one[2] or one[3]]
    if bad or not alike or deaths < args.kills:
        raise SystemExit(f"{bad} {alike} {deaths}")


if __name__ == "__main__":
    main()
