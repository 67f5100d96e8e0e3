"""Stored policies as players of environments, for whoever videos them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.data.record import PolicyFn
from embodied_rm.errors import UserError
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint
from embodied_rm.rl.learner.policy import GaussianPolicy, load_policy
from embodied_sim.vec_env import TabletopVecEnv

CONFIG_FILE = "config.json"
"""What a run was asked, in its folder."""


def deterministic_policy(folder: Path, envs: TabletopVecEnv) -> PolicyFn:
    """The mean action of the policy in a folder. Raises `UserError` where there is none, or one of another task."""
    policy = _load_matching_policy(folder, envs)
    return lambda observation, _: np.clip(policy.act(observation), -1, 1)


def stochastic_policy(folder: Path, envs: TabletopVecEnv, seed: int) -> PolicyFn:
    """The same, with the policy's exploration noise."""
    policy, generator = _load_matching_policy(folder, envs), torch.Generator().manual_seed(seed)
    return lambda observation, _: np.clip(policy.sample(observation, generator)[0], -1, 1)


def policy_task(folder: Path | str) -> str:
    """The task that a run of clone or refine was about. Raises `UserError` where `folder` is no such run."""
    config_path = Path(folder) / CONFIG_FILE
    run_config = json.loads(config_path.read_text())["config"] if config_path.is_file() else {}
    if "task" not in run_config or not (Path(folder) / POLICY_DIR / MANIFEST_NAME).is_file():
        raise UserError(
            f"{folder} is no run folder of embodied-rm clone or refine, with its {CONFIG_FILE} and its {POLICY_DIR}"
        )
    return str(run_config["task"])


def _load_matching_policy(folder: Path, envs: TabletopVecEnv) -> GaussianPolicy:
    """The policy in a folder; refuses one that was made for other observations."""
    policy = load_policy(resolve_checkpoint(folder, POLICY_DIR))
    if policy.spec.obs_mode != "state":
        raise UserError(
            f"the policy in {folder} sees {policy.spec.obs_mode}, and only those that see the state are recorded: "
            "embodied-rm refine judges it"
        )
    space = envs.single_observation_space
    if space.shape != (policy.spec.obs_dim,):
        raise UserError(
            f"the policy in {folder} was made for another task: it takes observations of shape "
            f"[{policy.spec.obs_dim}], {envs.task.name} gives {list(space.shape or ())}"
        )
    return policy
