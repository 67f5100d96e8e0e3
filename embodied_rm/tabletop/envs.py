"""Tabletop environments for training, evaluation and verification of policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from embodied_rm.distributed import find_device
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rl.envs.embedding_obs import EmbeddingObservation
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.watch.crosscheck import NUM_VERIFICATION_EPISODES, CrosscheckResult, crosscheck
from embodied_rm.rl.watch.evaluate_policy import EVAL_SEED_STREAM, EvalResult, evaluate_policy, stream_seed
from embodied_sim.domain_randomization import Randomization
from embodied_sim.holdout import Holdout

if TYPE_CHECKING:
    from embodied_sim.vec_env import TabletopVecEnv


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The simulated environments."""

    num_envs: int = 64
    views: tuple[str, ...] = ("front", "wrist")
    image_size: int = 64
    backend: str = "batch"
    device: str = "cpu"
    max_contacts: int = 0
    renderer: str = "auto"
    robot: str = "panda"
    tool_site: str = "tool"
    gripper_actuator: str = "grip"
    divergence_dump_dir: Path | None = None
    randomize: Randomization = field(default_factory=Randomization)


def make_envs(task: str, config: EnvConfig, *, ends_on_success: bool, holdout: Holdout | None = None) -> TabletopVecEnv:
    """Make tabletop environments without autoreset. Raises `SimError` for an unknown task or setting."""
    from embodied_sim.robots import find_robot  # by mujoco, the extra `sim`
    from embodied_sim.vec_env import TabletopVecEnv

    robot = find_robot(config.robot, config.tool_site, config.gripper_actuator)
    options = {name: value for name, value in vars(config).items() if name not in ("tool_site", "gripper_actuator")}
    options |= {"robot": robot, "autoreset_mode": AutoresetMode.DISABLED, "ends_on_success": ends_on_success}
    return TabletopVecEnv(task, **options, holdout=holdout)


def learner_device(config: EnvConfig) -> torch.device:
    """Return the torch device of the environments. Raises `UserError` if torch does not have it."""
    return find_device(config.device, "env.device")


def wrap_observations(envs: VectorEnv, obs_mode: str, encoder_model: RewardModel | None) -> VectorEnv:
    """Make the environments return the observations of `obs_mode`. Raises `UserError` if its encoder is missing."""
    if obs_mode == "state":
        return envs
    if encoder_model is None:
        needed = "the reward model that it was cloned with"
        raise UserError(f"a policy with obs_mode={obs_mode} needs {needed}: checkpoint=")
    return EmbeddingObservation(envs, encoder_model)


def make_evaluator(
    task: str,
    config: EnvConfig,
    *,
    episodes: int,
    seed: int,
    obs_mode: str = "state",
    encoder_model: RewardModel | None = None,
) -> Callable[[GaussianPolicy], EvalResult]:
    """Return a function that evaluates any policy on the same seeded episodes, by the simulator's success."""
    envs = wrap_observations(make_envs(task, config, ends_on_success=True), obs_mode, encoder_model)
    return lambda policy: evaluate_policy(envs, policy, episodes, seed)


def make_verifier(
    task: str,
    config: EnvConfig,
    refine_config: RefineConfig,
    *,
    obs_mode: str,
    encoder_model: RewardModel | None,
) -> Callable[[GaussianPolicy, int, RewardModel], CrosscheckResult]:
    """Return a function of policy, iteration and model that compares the model's successes with the simulator's.

    Every iteration has other episodes.
    """
    verify_config = replace(config, num_envs=NUM_VERIFICATION_EPISODES)
    envs = wrap_observations(make_envs(task, verify_config, ends_on_success=False), obs_mode, encoder_model)
    reward_config = replace(refine_config.reward, rule="shaped", success_source="simulator")

    def verify(policy: GaussianPolicy, iteration: int, model: RewardModel) -> CrosscheckResult:
        env = LearnedRewardEnv(envs, model, reward_config, refine_config.ppo.gamma)
        return crosscheck(env, policy, stream_seed(refine_config.seed, EVAL_SEED_STREAM, 1 + iteration))

    return verify
