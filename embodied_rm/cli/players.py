"""Stored policies as players of worlds, for whoever films them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from embodied_rm.checkpoint_io import MANIFEST
from embodied_rm.cli.places import POLICY, checkpoint_in
from embodied_rm.data.record import Act
from embodied_rm.errors import UserError
from embodied_rm.rl.learner.policy import GaussianPolicy, load_policy
from sim.vec_env import TabletopVecEnv

CONFIG = "config.json"
"""What a run was asked, in its folder."""


def calm(folder: Path, worlds: TabletopVecEnv) -> Act:
    """The mean action of the policy in a folder. Raises `UserError` where there is none, or one of another task."""
    policy = _fitting(folder, worlds)
    return lambda observation, _: np.clip(policy.act(observation), -1, 1)


def exploring(folder: Path, worlds: TabletopVecEnv, seed: int) -> Act:
    """The same, with the policy's exploration noise."""
    policy, generator = _fitting(folder, worlds), torch.Generator().manual_seed(seed)
    return lambda observation, _: np.clip(policy.sample(observation, generator)[0], -1, 1)


def task_of(folder: Path | str) -> str:
    """The task that a run of clone or refine was about. Raises `UserError` where `folder` is no such run."""
    config = Path(folder) / CONFIG
    asked = json.loads(config.read_text())["config"] if config.is_file() else {}
    if "task" not in asked or not (Path(folder) / POLICY / MANIFEST).is_file():
        raise UserError(f"{folder} is no run folder of embodied-rm clone or refine, with its {CONFIG} and its {POLICY}")
    return str(asked["task"])


def _fitting(folder: Path, worlds: TabletopVecEnv) -> GaussianPolicy:
    """The policy in a folder; refuses one that was made for other observations."""
    policy = load_policy(checkpoint_in(folder, POLICY))
    if policy.spec.sees != "state":
        raise UserError(
            f"the policy in {folder} sees {policy.spec.sees}, and only those that see the state are filmed: "
            "embodied-rm refine judges it"
        )
    space = worlds.single_observation_space
    if space.shape != (policy.spec.obs_dim,):
        raise UserError(
            f"the policy in {folder} was made for another task: it takes observations of shape "
            f"[{policy.spec.obs_dim}], {worlds.task.name} gives {list(space.shape or ())}"
        )
    return policy
