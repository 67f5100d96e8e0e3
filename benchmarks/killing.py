"""Runs that are killed at random moments and started again; for kill_resume.py and kill_training.py."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def run_with_kills(command: list[str], num_stored: Callable[[], int], kills: int, max_delay_s: float) -> list[int]:
    """Run, kill (SIGKILL) and run again until it was killed so often; how much was `stored` at each of its deaths.

    Every third time it dies within `longest` seconds of its start, else that long after it has stored something new.
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
            raise RuntimeError(f"{before} were stored, after another death {stored_at_kill[-1]}")
        logging.info("killed %d of %d, %d stored", len(stored_at_kill), kills, stored_at_kill[-1])
    return stored_at_kill


def read_manifest_count(folder: Path, key: str) -> int:
    """A number in the manifest of a checkpoint; 0 where there is none yet."""
    manifest = folder / "manifest.json"
    return int(json.loads(manifest.read_text())[key]) if manifest.exists() else 0
