"""`embodied-rm bench reward`: time of a refinement iteration with a learned reward and with the simulator's."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from gymnasium.spaces.utils import flatdim

from embodied_rm.command import Command
from embodied_rm.errors import check_minimum
from embodied_rm.experiments.load import load_or_make_net
from embodied_rm.experiments.results_page import describe_machine, write_results
from embodied_rm.models.progress_net import NetConfig
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint
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
        check_minimum(self, 1, "repeats")


def main(config: BenchRewardConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; write metrics and, if set, a section of the results page."""
    reward = RewardConfig(score_every=config.score_every, success_threshold=1.0)
    refine_config = RefineConfig(rollout_steps=config.rollout_steps, reward=reward)
    learned_envs, state_envs = (make_envs(config.task, config.env, ends_on_success=False) for _ in range(2))
    settings = {"task": config.task, "environments": config.env.num_envs, "views": ", ".join(config.env.views)}
    scored = f"every {config.score_every} steps of {config.rollout_steps}"
    reporter.table("bench reward", {"machine": describe_machine(), **settings, "scored": scored})
    try:
        model = load_or_make_net(config.checkpoint, NetConfig(views=config.env.views))
        policy = load_or_make_policy(config, learned_envs)
        timings = time_iterations(learned_envs, state_envs, model, policy, refine_config, config.repeats)
        metrics = summarize_cost(list(reporter.track(timings, "iterations", total=2 * config.repeats)))
    finally:
        learned_envs.close()
        state_envs.close()
    reporter.table("seconds per iteration", metrics)
    write_results(run, config.results_page, "bench reward", metrics, markdown_section(config, metrics))


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
