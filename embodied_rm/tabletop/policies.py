"""Policies as functions of observations, for recording their episodes."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.data.record import PolicyFn
from embodied_rm.errors import UserError
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint
from embodied_rm.rl.learner.policy import GaussianPolicy, load_policy
from embodied_rm.run_folder import RunFolder
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.vec_env import TabletopVecEnv

CONFIG_FILE = "config.json"
"""Config of a run, in its folder."""


def deterministic_policy(folder: Path, envs: TabletopVecEnv) -> PolicyFn:
    """Return the mean action of a stored policy. Raises `UserError` if it does not exist or is for another task."""
    policy = _load_matching_policy(folder, envs)
    return lambda observation, _: np.clip(policy.act(observation), -1, 1)


def stochastic_policy(folder: Path, envs: TabletopVecEnv, seed: int) -> PolicyFn:
    """Return a stored policy with its exploration noise; see `deterministic_policy`."""
    policy, generator = _load_matching_policy(folder, envs), torch.Generator().manual_seed(seed)
    return lambda observation, _: np.clip(policy.sample(observation, generator)[0], -1, 1)


def scripted_policy(policy: ScriptedPolicy) -> PolicyFn:
    """Return a scripted policy that draws a new plan for every episode."""

    def act(_: npt.NDArray[np.float32], new_episodes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        policy.reset(new_episodes)
        return policy.act()

    return act


def policy_task(folder: Path | str) -> str:
    """Return the task of a run of `clone` or `refine`. Raises `UserError` if `folder` is no such run."""
    config_path = Path(folder) / CONFIG_FILE
    run_config = RunFolder(Path(folder)).read_json(CONFIG_FILE).get("config", {}) if config_path.is_file() else {}
    if "task" not in run_config or not (Path(folder) / POLICY_DIR / MANIFEST_NAME).is_file():
        raise UserError(
            f"{folder} is no run folder of embodied-rm clone, offline or refine, with its {CONFIG_FILE} and its "
            f"{POLICY_DIR}"
        )
    return str(run_config["task"])


def _load_matching_policy(folder: Path, envs: TabletopVecEnv) -> GaussianPolicy:
    """Load a policy. Raises `UserError` if it takes other observations than these environments return."""
    policy = load_policy(resolve_checkpoint(folder, POLICY_DIR))
    if policy.spec.obs_mode != "state":
        raise UserError(
            f"the policy in {folder} has obs_mode={policy.spec.obs_mode}, and only policies with obs_mode=state can be "
            "recorded; embodied-rm refine evaluates it"
        )
    space = envs.single_observation_space
    if space.shape != (policy.spec.obs_dim,):
        raise UserError(
            f"the policy in {folder} was made for another task: it takes observations of shape "
            f"[{policy.spec.obs_dim}], {envs.task.name} gives {list(space.shape or ())}"
        )
    return policy
