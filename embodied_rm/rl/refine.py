"""Refinement of an imitated policy by reinforcement learning on a learned reward."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from embodied_rm.logs import open_logger
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rl.best_weights import describe_restored
from embodied_rm.rl.envs.curriculum import StartCurriculum, StartPool
from embodied_rm.rl.envs.learned_env import make_reward_env
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.envs.state_archive import StateArchive
from embodied_rm.rl.envs.takeover import Takeover
from embodied_rm.rl.iteration import Learner
from embodied_rm.rl.learner.policy import GaussianPolicy, save_policy
from embodied_rm.rl.off_policy.hnpg import HNPG
from embodied_rm.rl.off_policy.rlpd import RLPD
from embodied_rm.rl.refine_config import RefineConfig, success_description
from embodied_rm.rl.refine_loop import RefineLoop, evaluate_on_rank0
from embodied_rm.rl.refine_options import EvaluateFn, RefineOptions, validate_config, validate_options
from embodied_rm.rl.watch.evaluate_policy import EvalResult
from embodied_rm.rl.watch.log_rows import LogRow, format_row
from embodied_rm.run_folder import Reporter, RunFolder

COUNTS = ("episodes", "returned_episodes", "env_steps", "diverged_episodes")
"""Columns of the rows whose sums are in metrics.json."""
POLICY_DIR = "policy"


@dataclass(frozen=True, kw_only=True)
class RefineResult:
    """Result of a refinement."""

    policy: GaussianPolicy
    cloned_eval: EvalResult | None  # None: nothing evaluated it
    refined_eval: EvalResult | None
    log_rows: tuple[LogRow, ...]  # one per iteration, as in `progress.jsonl`
    restored_iteration: int | None = None  # iteration whose weights the policy has; None: those of the last update
    start_pool: StartPool | None = None  # the starts with their failure rates; None: every start was random

    def metrics(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        rows, evals = self.log_rows, {"cloned_success": self.cloned_eval, "refined_success": self.refined_eval}
        return {
            **{name: result.as_dict() for name, result in evals.items() if result is not None},
            "iterations": len(rows),
            "restored_iteration": self.restored_iteration,
            **{name: sum(row.get(name, 0) for row in rows) for name in COUNTS},
            "alarms": [row["iteration"] for row in rows if row["alarm"] is not None],
            "seconds": {phase: sum(row["seconds"][phase] for row in rows) for phase in rows[0]["seconds"]},
        }


def refine(
    env: gym.vector.VectorEnv,
    policy: GaussianPolicy,
    model: RewardModel,
    config: RefineConfig,
    run: RunFolder,
    reporter: Reporter,
    evaluate: EvaluateFn | None,
    options: RefineOptions | None = None,
) -> RefineResult:
    """Refine `policy` in place on the reward of `model`.

    After each iteration, the run folder has its row in `progress.jsonl` and in TensorBoard's event file, and a
    checkpoint of everything that learns. A run folder with a checkpoint is continued at the first missing iteration,
    with the running episodes. On the CPU, the weights are then bit-identical to those of an uninterrupted run. If the
    environment cannot be restored or the model's state cannot be stored, new episodes start instead. The refined policy
    is written to `policy/`.

    Args:
        env: Vector environment of `LearnedRewardEnv`; with several processes, this process's part.
        reporter: Output for the user.
        evaluate: Evaluation before and after the refinement, on rank 0; None: none.
        options: Further evaluations, demonstrations and processes; None: none of them.

    Raises:
        UserError: The environment does not meet the requirements, or a loss is not finite.
    """
    options = options or RefineOptions()
    dist = options.dist
    validate_config(config, policy, options.demonstrations, dist, teaches=options.teacher is not None)
    validate_options(config, options)
    reward_env = wrap_env(env, model, config, options)
    loop = RefineLoop(reward_env, policy, model, config, run, options)
    reporter.table("refine", summarize_setup(env, loop.learner, model, config))
    reward_env.check_rule_inputs(config.rollout_steps)
    cloned_eval = evaluate_imitated(evaluate, loop.learner, reporter)
    loop.resume()
    with open_logger(run, reporter, config.wandb_project, dist.rank) as log:
        for iteration in reporter.track(range(len(loop.rows), config.iterations), "refine", total=config.iterations):
            if loop.is_done():
                break
            loop.run_iteration(iteration, log)
            reporter.log(format_row(loop.rows[-1]))
    restored = loop.restore_best()
    if config.restore_best_weights:
        reporter.log(describe_restored(restored))
    if dist.rank == 0:
        save_policy(run.path / POLICY_DIR, policy)
    evals = {"cloned_eval": cloned_eval, "refined_eval": evaluate_on_rank0(evaluate, policy, dist)}
    pool = None if reward_env.curriculum is None else reward_env.curriculum.pool
    return RefineResult(policy=policy, **evals, log_rows=tuple(loop.rows), restored_iteration=restored, start_pool=pool)


def wrap_env(env: gym.vector.VectorEnv, model: RewardModel, config: RefineConfig, options: RefineOptions) -> RewardEnv:
    """Return the environment with the reward, the start states, the help and the archive of a refinement."""
    reward_env = make_reward_env(env, model, config.reward, config.ppo.gamma)
    if options.starts is not None:
        reward_env.curriculum = StartCurriculum.from_pool(options.starts, env.num_envs, config.seed)
    elif config.start_pool_size:
        reward_env.curriculum = StartCurriculum(config.start_pool_size, env.num_envs, config.seed)
    if options.helper is not None:
        reward_env.takeover = Takeover(config.takeover, options.helper, env.num_envs)
    if config.archive.share:
        reward_env.check_restores_rows()
        reward_env.archive = StateArchive(config.archive, env.num_envs, config.seed)
    return reward_env


def evaluate_imitated(evaluate: EvaluateFn | None, learner: Learner, reporter: Reporter) -> EvalResult | None:
    """Evaluate the imitated policy, and log its success."""
    result = evaluate_on_rank0(evaluate, learner.reference, learner.dist)
    if result is not None:
        reporter.log(f"imitated policy: success {result.rate:.3f} in {result.episodes} episodes")
    return result


def summarize_setup(
    env: gym.vector.VectorEnv, learner: Learner, model: RewardModel, config: RefineConfig
) -> dict[str, object]:
    """Return the table that is printed before the first step."""
    threshold = model.capabilities.select_success_threshold(config.reward.success_threshold)
    return {
        "environments": f"{learner.dist.world_size * env.num_envs} in {learner.dist.world_size} processes",
        "reward model": type(model).__name__,
        "policy": f"{learner.policy.spec.obs_dim} -> {learner.policy.spec.hidden} -> {learner.policy.spec.action_dim}",
        "algorithm": config.algorithm,
        "iterations": f"{config.iterations} of {config.rollout_steps} steps, "
        f"{config.critic_warmup_iterations} of critic warm-up",
        "gamma": config.ppo.gamma,
        "reward rule": f"{config.reward.rule}, scale {config.reward.progress_scale}, scored every "
        f"{config.reward.score_every} steps",
        "success": f"+{config.reward.success_reward} {success_description(config.reward, threshold)}",
        **summarize_algorithm(learner, config),
    }


def summarize_algorithm(learner: Learner, config: RefineConfig) -> dict[str, object]:
    """Return the rows of that table which only one algorithm has."""
    if isinstance(learner, RLPD):
        share, recorded = config.rlpd.recorded_share, learner.num_recorded
        return {
            "updates": f"{config.rlpd.updates_per_step:g} per step, {config.rlpd.batch_size} transitions each",
            "recorded": f"{recorded} transitions, {share:.0%} of each batch",
        }
    hybrid = {}
    if isinstance(learner, HNPG):
        hybrid = {"recorded": f"{learner.num_recorded} transitions, weight {config.hnpg.recorded_coef:g} in the critic"}
    return {
        **hybrid,
        "heuristic coefficient": f"{config.heuristic_coef}, 0 at a mean final potential of {config.heuristic_off_at:g}",
        "KL to the imitated policy": f"{config.bc_kl_coef} falling to 0",
        "KL to the demonstrations": config.imitation_coef,
    }
