"""Checkpoint of a refinement: everything that learns, and the running episodes."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from safetensors.torch import load as parse_tensors
from torch import Tensor

from embodied_rm.atomic_file import write_atomic
from embodied_rm.checkpoint_io import add_prefix, load_tensors, save_tensors, strip_prefix, to_safetensors
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.logs import MetricsLogger
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.learner.ppo import PPO
from embodied_rm.rl.off_policy.rlpd import RLPD
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.resume_inputs import check_same_inputs, describe_inputs
from embodied_rm.rl.watch.log_rows import LogRow, read_rows, to_scalars
from embodied_rm.run_folder import RunFolder

ARCHITECTURE = "ppo_refinement"
CHECKPOINT_DIR = "checkpoint"
PROGRESS_FILE = "progress.jsonl"
DURATION_KEYS = ("iterations", "max_episodes", "stop_success", "stop_patience", "eval_episodes", "wandb_project")
"""Settings that a continued refinement may change: they end it, or watch it."""


def refinement_inputs(
    config: RefineConfig, policy: GaussianPolicy, recorded: OfflineTransitions | None
) -> dict[str, str]:
    """Return what a continued refinement must have in common with the interrupted one; how long it lasts may change."""
    settings: dict[str, Any] = {}
    for name, value in asdict(config).items():
        settings |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    kept = {name: value for name, value in settings.items() if name not in DURATION_KEYS}
    columns = () if recorded is None else vars(recorded).values()
    return describe_inputs(kept, (*policy.state_dict().values(), *columns))


def save_refinement(
    learner: PPO | RLPD,
    rollout_rewards: RolloutRewards,
    env: RewardEnv,
    rows: list[LogRow],
    run: RunFolder,
    log: MetricsLogger,
    inputs: Mapping[str, str],
) -> None:
    """Write the rows of `progress.jsonl` and then the checkpoint, so that a checkpoint never lacks its rows.

    Rank 0 writes, the episodes of all processes too. `inputs` are those of `refinement_inputs`.
    """
    dist = learner.dist
    contents = dist.all_gather_bytes(to_safetensors(env.state_dict()))
    if dist.rank:
        return
    episodes = {f"episodes{rank}": parse_tensors(content) for rank, content in enumerate(contents)}
    log.write(rows[-1]["iteration"], to_scalars(rows[-1]))
    write_atomic(run.file_path(PROGRESS_FILE), "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    manifest = {
        "architecture": ARCHITECTURE,
        "iterations": len(rows),
        "processes": dist.world_size,
        "inputs": dict(inputs),
    }
    tensors = learner.state_dict()
    for name, state in {"rollout_rewards": rollout_rewards.state_dict(), **episodes}.items():
        tensors |= add_prefix(name, state)
    save_tensors(run.path / CHECKPOINT_DIR, tensors, manifest)


def load_refinement(
    learner: PPO | RLPD, rollout_rewards: RolloutRewards, run: RunFolder, inputs: Mapping[str, str]
) -> tuple[list[LogRow], dict[str, Tensor]]:
    """Restore learner and rollout rewards in place after the last completed iteration.

    Return the rows of `progress.jsonl` up to it, and the stored episodes of this process. Another number of processes,
    other inputs and missing rows raise an error.
    """
    dist = learner.dist
    tensors, manifest = load_tensors(run.path / CHECKPOINT_DIR, ARCHITECTURE)
    if manifest["processes"] != dist.world_size:
        previous = manifest["processes"]
        raise UserError(f"the run in {run.path} was started with {previous} processes, not {dist.world_size}")
    check_same_inputs(manifest.get("inputs", inputs), inputs, run.path)  # runs of earlier versions stored none
    learner.load_state_dict(tensors, run.path / CHECKPOINT_DIR)
    rollout_rewards.load_state_dict(strip_prefix("rollout_rewards", tensors), run.path / CHECKPOINT_DIR)
    path = run.path / PROGRESS_FILE
    rows = read_rows(path)[: manifest["iterations"]] if path.exists() else []
    if len(rows) != manifest["iterations"]:
        raise CheckpointError(f"{path}: {len(rows)} rows, the checkpoint is after {manifest['iterations']} iterations")
    return rows, strip_prefix(f"episodes{dist.rank}", tensors)
