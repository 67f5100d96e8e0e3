"""Start states with failure rates as a file: what fails in one world is trained in another (TwinRL).

A start is a seed. It gives the same layout and instruction with every robot and randomization.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.errors import DataError, UserError
from embodied_rm.rl.envs.curriculum import FIRST_SEED, StartPool
from embodied_rm.run_folder import RunFolder
from embodied_rm.tabletop.envs import EnvConfig
from embodied_rm.text_file import read_text

STARTS_FILE = "starts.json"
SCHEMA_VERSION = 1


def write_starts(run: RunFolder, pool: StartPool, task: str, env_config: EnvConfig) -> None:
    """Write a pool into a run folder, with the task and the world in which its failure rates were found."""
    starts = [
        {"seed": seed, "failure_rate": rate}
        for seed, rate in zip(pool.seeds.tolist(), pool.failure_rates.tolist(), strict=True)
    ]
    world = {"robot": env_config.robot, "randomize": asdict(env_config.randomize)}
    run.write_json(STARTS_FILE, {"schema_version": SCHEMA_VERSION, "task": task, "world": world, "starts": starts})


def read_starts(path: Path, task: str) -> StartPool:
    """Read the pool of a file of `write_starts`, or of a run folder.

    Raises:
        UserError: There is none, or it is of another task.
        DataError: The file is not such a file.
    """
    file = path / STARTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"starts={path}: there is no {file}; refine with start_pool_size= writes it")
    text = read_text(file)
    try:
        content: dict[str, Any] = json.loads(text)
        version, found_task = content["schema_version"], content["task"]
        seeds = np.array([start["seed"] for start in content["starts"]], np.int64)
        rates = np.array([start["failure_rate"] for start in content["starts"]], np.float64)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{file}: is not a file of start states ({error!r})") from None
    if version != SCHEMA_VERSION:
        raise DataError(f"{file}: has schema_version {version}, this package reads {SCHEMA_VERSION}")
    if found_task != task:
        raise UserError(f"{file}: its starts are of the task {found_task}, not of {task}")
    if not len(seeds) or seeds.min() < FIRST_SEED or not ((rates >= 0) & (rates <= 1)).all():
        raise DataError(f"{file}: a start needs a seed of at least {FIRST_SEED} and a failure_rate from 0 to 1")
    return StartPool(seeds=seeds, failure_rates=rates)
