"""A refinement on disk, and how it goes on: everything that learns, and the episodes under way."""

from __future__ import annotations

import json

from safetensors.torch import load as parse_tensors
from torch import Tensor

from embodied_rm.atomic_file import write_atomic
from embodied_rm.checkpoint_io import load_tensors, save_tensors, serialised, under_prefix, with_prefix
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.logs import Log
from embodied_rm.rl.credit.settlement import Settlement
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.learner.ppo import PPO
from embodied_rm.rl.watch.progress_rows import Row, as_curves, read_rows
from embodied_rm.run import RunFolder

ARCHITECTURE = "ppo_refinement"
CHECKPOINT, PROGRESS = "checkpoint", "progress.jsonl"


def save(learner: PPO, settlement: Settlement, env: RewardEnv, rows: list[Row], run: RunFolder, log: Log) -> None:
    """Write progress first and the checkpoint last, so that a checkpoint never lacks its rows. Of several processes the
    first one writes, the episodes of all."""
    group = learner.group
    told = group.all_gather(serialised(env.state()))
    if group.rank:
        return
    episodes = {f"episodes{rank}": parse_tensors(content) for rank, content in enumerate(told)}
    log.write(rows[-1]["iteration"], as_curves(rows[-1]))
    write_atomic(run.file(PROGRESS), "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    manifest = {"architecture": ARCHITECTURE, "iterations": len(rows), "processes": group.size}
    parts = {"settlement": settlement.state(), **episodes}
    tensors = {**learner.state(), **{k: v for name, part in parts.items() for k, v in with_prefix(name, part).items()}}
    save_tensors(run.path / CHECKPOINT, tensors, manifest)


def resume(learner: PPO, settlement: Settlement, run: RunFolder) -> tuple[list[Row], dict[str, Tensor]]:
    """Load the last whole iteration into learner and settlement; the rows up to it, and what is stored of the episodes
    of this process. Raises `UserError` for a run of another number of processes."""
    group = learner.group
    tensors, manifest = load_tensors(run.path / CHECKPOINT, ARCHITECTURE)
    if manifest["processes"] != group.size:
        raise UserError(f"the run in {run.path} was begun by {manifest['processes']} processes, these are {group.size}")
    learner.restore(tensors, run.path / CHECKPOINT)
    settlement.restore(under_prefix("settlement", tensors), run.path / CHECKPOINT)
    path = run.path / PROGRESS
    rows = read_rows(path)[: manifest["iterations"]] if path.exists() else []
    if len(rows) != manifest["iterations"]:
        raise CheckpointError(f"{path}: {len(rows)} rows, the checkpoint has seen {manifest['iterations']} iterations")
    return rows, under_prefix(f"episodes{group.rank}", tensors)
