"""Runs that are killed at random moments and started again; for kill_resume.py and kill_training.py."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def killed(run: list[str], stored: Callable[[], int], kills: int, longest: float) -> list[int]:
    """Run, kill (SIGKILL) and run again until it was killed so often; how much was `stored` at each of its deaths.

    Every third time it dies within `longest` seconds of its start, else that long after it has stored something new.
    """
    deaths: list[int] = []
    while len(deaths) < kills:
        before = stored()
        child = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if len(deaths) % 3:
            while stored() == before and child.poll() is None:
                time.sleep(0.02)
        time.sleep(random.uniform(0.0, longest))
        if child.poll() is not None:
            raise RuntimeError(f"the run ended by itself after {len(deaths)} kills: make it longer")
        child.kill()
        child.wait()
        deaths.append(stored())
        if deaths[-1] < before:
            raise RuntimeError(f"{before} were stored, after another death {deaths[-1]}")
        logging.info("killed %d of %d, %d stored", len(deaths), kills, deaths[-1])
    return deaths


def told(folder: Path, key: str) -> int:
    """A number in the manifest of a checkpoint; 0 where there is none yet."""
    manifest = folder / "manifest.json"
    return int(json.loads(manifest.read_text())[key]) if manifest.exists() else 0
