"""Tabletop environments for training, evaluation and verification of policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rl.envs.embedding_obs import EmbeddingObservation
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.seeds import stream_seed
from embodied_rm.rl.watch.crosscheck import NUM_VERIFICATION_EPISODES, CrosscheckResult, crosscheck
from embodied_rm.rl.watch.evaluate_policy import EVAL_SEED_STREAM, EvalResult, evaluate_policy
from embodied_sim.domain_randomization import Randomization
from embodied_sim.holdout import Holdout
from embodied_sim.robots import find_robot
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
    """Make tabletop environments without autoreset.

    Raises:
        SimError: the task, robot, view, backend, device or renderer is unknown.
    """
    return TabletopVecEnv(
        task,
        config.num_envs,
        views=config.views,
        image_size=config.image_size,
        autoreset_mode=AutoresetMode.DISABLED,
        ends_on_success=ends_on_success,
        backend=config.backend,
        device=config.device,
        max_contacts=config.max_contacts,
        renderer=config.renderer,
        robot=find_robot(config.robot, config.tool_site, config.gripper_actuator),
        divergence_dump_dir=config.divergence_dump_dir,
        randomize=config.randomize,
        holdout=holdout,
    )


def learner_device(config: EnvConfig) -> torch.device:
    """Return the torch device of the environments. Raises `UserError` if torch does not have it."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"env.device=cuda needs a torch with CUDA that finds a GPU; torch {torch.__version__} here finds none: "
            "install a CUDA build of torch, or use env.device=cpu"
        )
    return torch.device(config.device)


def wrap_observations(envs: VectorEnv, obs_mode: str, encoder_model: RewardModel | None) -> VectorEnv:
    """Wrap the environments so that they return the observations of `obs_mode`.

    Raises:
        UserError: the mode needs an encoder and `encoder_model` is None.
    """
    if obs_mode == "state":
        return envs
    if encoder_model is None:
        raise UserError(
            f"a policy with obs_mode={obs_mode} needs the reward model that it was cloned with: checkpoint="
        )
    return EmbeddingObservation(envs, encoder_model)


def make_evaluator(
    task: str, config: EnvConfig, *, episodes: int, seed: int, obs_mode: str, encoder_model: RewardModel | None
) -> Callable[[GaussianPolicy], EvalResult]:
    """Return a function that evaluates a policy on `episodes` seeded episodes by the simulator's success.

    All policies are evaluated on the same episodes.
    """
    envs = wrap_observations(make_envs(task, config, ends_on_success=True), obs_mode, encoder_model)
    return lambda policy: evaluate_policy(envs, policy, episodes, seed)


def make_verifier(
    task: str,
    config: EnvConfig,
    refine_config: RefineConfig,
    *,
    obs_mode: str,
    model: RewardModel,
    encoder_model: RewardModel | None,
) -> Callable[[GaussianPolicy, int], CrosscheckResult]:
    """Return a function that compares the success predictions of the model with the simulator's success.

    It takes a policy and an iteration; every iteration has other episodes.
    """
    verify_config = replace(config, num_envs=NUM_VERIFICATION_EPISODES)
    envs = wrap_observations(make_envs(task, verify_config, ends_on_success=False), obs_mode, encoder_model)
    reward_config = replace(refine_config.reward, rule="shaped", success_source="simulator")
    env = LearnedRewardEnv(envs, model, reward_config, refine_config.ppo.gamma)
    return lambda policy, iteration: crosscheck(
        env, policy, stream_seed(refine_config.seed, EVAL_SEED_STREAM, 1 + iteration)
    )
