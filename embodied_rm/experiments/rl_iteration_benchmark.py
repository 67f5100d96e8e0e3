"""`embodied-rm bench reward`: time of a refinement iteration with a learned reward and with the simulator's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from gymnasium.spaces.utils import flatdim

from embodied_rm.command import Command
from embodied_rm.errors import UserError
from embodied_rm.experiments.results_page import describe_machine, write_section
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.paths import CHECKPOINT_DIR, POLICY_DIR, resolve_checkpoint
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.iteration_cost import summarize_cost, time_iterations
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_sim.vec_env import TabletopVecEnv


@dataclass(frozen=True, kw_only=True)
class BenchRewardConfig:
    """Config of `bench reward`."""

    task: str = "lift_cube"
    policy: Path | None = None
    checkpoint: Path | None = None
    score_every: int = 5
    rollout_steps: int = 60
    repeats: int = 5
    results_page: Path | None = None
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise UserError(f"repeats must be >= 1, got {self.repeats}")


def main(config: BenchRewardConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; write metrics and, if set, a section of the results page."""
    reward = RewardConfig(score_every=config.score_every, success_threshold=1.0)
    refine_config = RefineConfig(rollout_steps=config.rollout_steps, reward=reward)
    learned_envs, state_envs = (make_envs(config.task, config.env, ends_on_success=False) for _ in range(2))
    reporter.table(
        "bench reward",
        {
            "machine": describe_machine(),
            "task": config.task,
            "environments": config.env.num_envs,
            "views": ", ".join(config.env.views),
            "scored": f"every {config.score_every} steps of {config.rollout_steps}",
        },
    )
    try:
        timings = time_iterations(
            learned_envs,
            state_envs,
            load_or_make_model(config),
            load_or_make_policy(config, learned_envs),
            refine_config,
            config.repeats,
        )
        metrics = summarize_cost(list(reporter.track(timings, "iterations", total=2 * config.repeats)))
    finally:
        learned_envs.close()
        state_envs.close()
    reporter.table("seconds per iteration", metrics)
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), **metrics}})
    if config.results_page is not None:
        write_section(config.results_page, "bench reward", markdown_section(config, metrics))


def load_or_make_model(config: BenchRewardConfig) -> RewardModel:
    """Load the checkpoint, or make a default model with random weights, which take the same time."""
    if config.checkpoint is not None:
        return load_progress_net(resolve_checkpoint(config.checkpoint, CHECKPOINT_DIR))
    torch.manual_seed(0)
    return ProgressNet(NetConfig(views=config.env.views))


def load_or_make_policy(config: BenchRewardConfig, envs: TabletopVecEnv) -> GaussianPolicy:
    """Load the policy, or make a default one with random weights."""
    if config.policy is not None:
        return load_policy(resolve_checkpoint(config.policy, POLICY_DIR))
    torch.manual_seed(0)
    observation, action = envs.single_observation_space, envs.single_action_space
    return GaussianPolicy(
        PolicySpec(obs_dim=flatdim(observation), action_dim=flatdim(action), length_dims=flatdim(observation))
    )


def markdown_section(config: BenchRewardConfig, metrics: dict[str, float]) -> str:
    """Return the results as Markdown."""
    shares = ", ".join(
        f"{name} {metrics[f'fraction_{name}']:.0%}" for name in ("physics", "render", "score", "learn", "act")
    )
    size = config.env.image_size
    return f"""## Cost of a learned reward

`embodied-rm bench reward`: an iteration of refinement of `{config.task}`: {config.rollout_steps} steps of
{config.env.num_envs} environments, {len(config.env.views)} views of {size}x{size} scored every
{config.score_every} steps, then the update of PPO. Medians of {config.repeats} interleaved runs.

| reward | seconds per iteration | ratio |
|---|---|---|
| simulator state | {metrics["state_s"]:.2f} | 1 |
| learned, from images | {metrics["learned_s"]:.2f} | {metrics["learned_over_state"]:.2f} |

Shares of the learned one: {shares}. "score" is the inference of the reward model."""


COMMAND = Command(schema=BenchRewardConfig, main=main)
