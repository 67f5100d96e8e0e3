"""Runs that are killed at random times and restarted; for kill_policy_finetuning.py and kill_reward_training.py."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

from embodied_rm.checkpoint_io import load_tensors


def run_with_kills(command: list[str], num_stored: Callable[[], int], kills: int, max_delay_s: float) -> list[int]:
    """Run a command and kill it (SIGKILL) repeatedly.

    Every third kill comes within `max_delay_s` of the start, the others within `max_delay_s` of new stored progress.

    Args:
        command: The command.
        num_stored: Returns the stored progress.
        kills: Number of kills.
        max_delay_s: Maximum delay of a kill.

    Returns:
        The stored progress at each kill.
    """
    stored_at_kill: list[int] = []
    while len(stored_at_kill) < kills:
        before = num_stored()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if len(stored_at_kill) % 3:
            while num_stored() == before and child.poll() is None:
                time.sleep(0.02)
        time.sleep(random.uniform(0.0, max_delay_s))
        if child.poll() is not None:
            raise RuntimeError(f"the run ended by itself after {len(stored_at_kill)} kills: make it longer")
        child.kill()
        child.wait()
        stored_at_kill.append(num_stored())
        if stored_at_kill[-1] < before:
            raise RuntimeError(f"the stored progress fell from {before} to {stored_at_kill[-1]}")
        logging.info("killed %d of %d, %d stored", len(stored_at_kill), kills, stored_at_kill[-1])
    return stored_at_kill


def compare_with_uninterrupted_run(
    command: Callable[[Path], list[str]], root: Path, checkpoint: str, architecture: str
) -> bool:
    """Finish the killed run in `root / "interrupted"`, make another one without kills, and compare their tensors."""
    states = []
    for name in ("interrupted", "uninterrupted"):
        subprocess.run(command(root / name), check=True, stdout=subprocess.DEVNULL)
        states.append(load_tensors(root / name / checkpoint, architecture)[0])
    return all(torch.equal(states[0][name], states[1][name]) for name in states[1])


def read_manifest_count(folder: Path, key: str) -> int:
    """Return a number of a checkpoint's manifest, or 0 if there is no checkpoint yet."""
    manifest = folder / "manifest.json"
    return int(json.loads(manifest.read_text())[key]) if manifest.exists() else 0
