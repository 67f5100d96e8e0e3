"""Interrupt every command at random moments, and check the files that it leaves and the run that goes on.

    sudo .venv/bin/python benchmarks/interruptions.py --repeats 20 --page docs/results/interruptions.md

Each run writes to a small file system in memory, so that space can end at a random byte. Finished cells are stored
beside the page, and are not run again.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import subprocess
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from cli_process import CLI_COMMAND, run_once
from run_files import half_files, result_values

from embodied_rm.experiments.results_cache import open_results_cache
from embodied_rm.experiments.results_page import write_section
from embodied_rm.report.markdown import markdown_table

MAX_BYTES = 1 << 30  # of the file system without interruption
PAGE_BYTES = 4096  # its sizes are multiples of it
RECORD = ("collect", "tasks=[lift_cube]", "num_successes=3", "num_failures=1", "env.num_envs=4", "env.image_size=64")
SMALL_MODEL = ("image_size=[32,32]", "batch_size=4", "frames_per_episode=4", "steps=30", "checkpoint_seconds=0.5")
EPISODES = ("task=lift_cube", "data={recorded}", "eval_episodes=4")
COMMANDS = {
    "adapt": ("data={recorded}", *SMALL_MODEL),
    "audit": ("data={unseen}", "episode_indices=[0]"),
    "calibrate": ("data={unseen}", "checkpoint={trained}"),
    "clone": (*EPISODES, "num_demonstrations=3", "steps=200"),
    "collect": RECORD[1:],
    "compare": (
        *("tasks=[press_button]", "rules=[shaped,sparse]", "num_seeds=1", "collect.num_successes=3"),
        *(f"task_presets.press_button.{name}" for name in ("num_demonstrations=2", "iterations=2", "rollout_steps=6")),
        *("clone.steps=60", "clone.eval_episodes=4", "clone.env.num_envs=4", "refine.critic_warmup_iterations=1"),
        *("refine.env.num_envs=4", "refine.eval_episodes=4", "refine.final_eval_episodes=4"),
    ),
    "convert": ("data={recorded}",),
    "dpo": (*EPISODES, "policy={policy}", "world_model_steps=30", "steps=20"),
    "evaluate": ("data={unseen}", "checkpoint={trained}", "report_episodes=1"),
    "export": ("checkpoint={trained}",),
    "filter": ("data={recorded}", "scores={scores}", "min_success=0"),
    "inspect": ("data={recorded}", "report_episodes=1"),
    "offline": (*EPISODES, "steps=60"),
    "play": ("task=press_button",),
    "prefer": ("data={recorded}", "num_pairs=50"),
    "refine": (
        *("task=lift_cube", "policy={policy}", "checkpoint={trained}", "iterations=4", "critic_warmup_iterations=1"),
        *("rollout_steps=20", "env.num_envs=4", "eval_episodes=4", "final_eval_episodes=4"),
    ),
    "score": ("data={recorded}", "checkpoint={trained}", "report_episodes=1", "shard_episodes=1"),
    "train": ("data={recorded}", *SMALL_MODEL),
}
"""The arguments of each command, with inputs in braces."""
INPUTS = {
    "recorded": RECORD,
    "unseen": (*RECORD, "seed=100"),
    "trained": ("train", "data={recorded}", *SMALL_MODEL),
    "policy": ("clone", *EPISODES, "num_demonstrations=3", "steps=200"),
    "scores": ("score", "data={recorded}", "checkpoint={trained}", "report_episodes=0"),
}


class Run:
    """A command in a file system of its own, `folder`, with its output in `log`."""

    def __init__(self, folder: Path, words: tuple[str, ...]) -> None:
        self.folder, self.log = folder, folder.with_suffix(".log")
        self.words = [*words, f"out={folder}/run"]

    def clear(self) -> None:
        """Begin with an empty file system."""
        if self.folder.is_mount():
            subprocess.run(["umount", "--lazy", self.folder], check=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MAX_BYTES}", "tmpfs", self.folder], check=True)

    def remount(self, options: str) -> bool:
        """Change the file system; return whether the system does so now."""
        command = ["mount", "-o", f"remount,{options}", str(self.folder)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Start the command."""
        with self.log.open("wb") as log:
            return subprocess.Popen([*CLI_COMMAND, *self.words, *more], stdout=log, stderr=log, start_new_session=True)

    def finish(self, *more: str) -> tuple[int, float]:
        """Run the command to its end; return exit code and seconds."""
        start_s = time.monotonic()
        return self.start(*more).wait(), time.monotonic() - start_s


def send(number: signal.Signals, run: Run, seconds: float, num_bytes: int) -> int:
    """Send a signal at a random moment."""
    process = run.start()
    time.sleep(random.uniform(0, seconds))
    process.send_signal(number)
    return process.wait()


def end_space(run: Run, seconds: float, num_bytes: int) -> int:
    """Let the space end at a random byte of the result."""
    run.remount(f"size={random.randrange(PAGE_BYTES, num_bytes)}")
    code, _ = run.finish()
    run.remount(f"size={MAX_BYTES}")
    return code


def make_read_only(run: Run, seconds: float, num_bytes: int) -> int:
    """Make the file system read-only at a random moment, or as soon as no file is open for writing."""
    process = run.start()
    time.sleep(random.uniform(0, seconds))
    while not run.remount("ro") and process.poll() is None:
        time.sleep(0.001)
    code = process.wait()
    run.remount("rw")
    return code


INTERRUPTIONS: dict[str, Callable[[Run, float, int], int]] = {
    "no space": end_space,
    "read-only": make_read_only,
    **{number.name: partial(send, number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)},
}


class Undisturbed(NamedTuple):
    """What two undisturbed runs have in common."""

    values: dict[str, str]
    seconds: float
    num_bytes: int


@cache
def run_undisturbed(run: Run) -> Undisturbed:
    """Run a command twice."""
    contents, seconds = [], 0.0
    for _ in range(2):
        run.clear()
        code, seconds = run.finish()
        if code:
            raise RuntimeError(f"{' '.join(run.words)} ends with {code}:\n{run.log.read_text()}")
        contents.append(result_values(run.folder))
    stable = {name: value for name, value in contents[0].items() if contents[1].get(name) == value}
    num_bytes = sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file())
    return Undisturbed(stable, seconds, num_bytes)


def measure(run: Run, interrupt: Callable[[Run, float, int], int], repeats: int) -> dict[str, object]:
    """Return how often a command failed one of the three checks when it was interrupted."""
    stable, seconds, num_bytes = run_undisturbed(run)
    failed: dict[str, list[str]] = {"traceback": [], "half file": [], "other result": []}
    for _ in range(repeats):
        run.clear()
        code = interrupt(run, seconds, num_bytes)
        output = run.log.read_text()
        if code == 1 or "Traceback" in output:
            failed["traceback"].append(output[-2000:])
        failed["half file"] += half_files(run.folder)[:1]
        code, _ = run.finish("resume=true")
        if code:
            failed["other result"].append(f"exit code {code}: {run.log.read_text()[-1000:]}")
            continue
        values = result_values(run.folder)
        failed["other result"] += [name for name, value in stable.items() if values.get(name) != value][:1]
    return {"runs": repeats, "stable values": len(stable), **{name: len(texts) for name, texts in failed.items()}} | {
        "examples": {name: texts[:2] for name, texts in failed.items() if texts}
    }


def run_cells(arguments: argparse.Namespace) -> None:
    """Make the inputs, run all cells, and write the page."""
    results, root = open_results_cache(arguments.page), arguments.out.resolve()
    inputs = {name: str(root / "inputs" / name) for name in INPUTS}
    for name, words in INPUTS.items():
        run_once(Path(inputs[name]), [format_word(word, inputs) for word in words])
    rows = []
    for command in arguments.commands or COMMANDS:
        words = tuple(format_word(word, inputs) for word in COMMANDS[command])
        run = Run(root / "volume", (command, *words))
        for name, interrupt in INTERRUPTIONS.items():
            settings = {"words": COMMANDS[command], "repeats": arguments.repeats}
            work = partial(measure, run, interrupt, arguments.repeats)
            result = results.get_or_measure(f"{command}, {name}", settings, root / "cells" / f"{command}_{name}", work)
            logging.info("%s, %s: %s", command, name, result)
            rows.append([f"`{command}`", name, *(str(result[key]) for key in list(result)[:5])])
    if arguments.page:
        header = ["command", "interruption", "runs", "compared values", "traceback", "half file", "other result"]
        text = "\n".join(["## Interruptions", "", *markdown_table(header, rows)])
        write_section(arguments.page, "interruptions", text, title="Interrupted commands")


def format_word(word: str, inputs: dict[str, str]) -> str:
    """Insert the inputs; braces of configs stay."""
    for name, path in inputs.items():
        word = word.replace(f"{{{name}}}", path)
    return word


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", nargs="*", choices=sorted(COMMANDS), help="default: all")
    parser.add_argument("--repeats", type=int, default=20, help="runs per command and interruption")
    parser.add_argument("--page", type=Path, help="results page; finished cells are stored beside it")
    parser.add_argument("--out", type=Path, default=Path("runs/interruptions"))
    return parser.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    run_cells(parse_arguments())
