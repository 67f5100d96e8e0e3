"""Refinement of an imitated policy by reinforcement learning on a learned reward."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.logs import open_logger
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rl.best_weights import BestWeights, describe_restored
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.curriculum import StartCurriculum, StartPool
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv, make_reward_env
from embodied_rm.rl.envs.reward_env import RewardEnv, has_env_state
from embodied_rm.rl.envs.state_archive import StateArchive
from embodied_rm.rl.envs.takeover import Helper, Takeover
from embodied_rm.rl.iteration import Learner, make_heuristic, make_hybrid_learner, make_learner, run_iteration
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy, save_policy
from embodied_rm.rl.off_policy.hnpg import HNPG
from embodied_rm.rl.off_policy.rlpd import RLPD
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine_checkpoint import CHECKPOINT_DIR, load_refinement, refinement_inputs, save_refinement
from embodied_rm.rl.refine_config import USES_RECORDED, RefineConfig, success_description
from embodied_rm.rl.watch.crosscheck import CrosscheckResult
from embodied_rm.rl.watch.evaluate_policy import EvalResult, stream_seed
from embodied_rm.rl.watch.hacking_monitor import detect_reward_hacking
from embodied_rm.rl.watch.log_rows import LogRow, crosscheck_columns, eval_columns, format_row, training_episodes
from embodied_rm.run_folder import Reporter, RunFolder

COUNTS = ("episodes", "returned_episodes", "env_steps", "diverged_episodes")
"""Columns of the rows whose sums are in metrics.json."""
R = TypeVar("R", EvalResult, CrosscheckResult)
POLICY_DIR = "policy"
MIN_STOP_EPISODES = 30  # all of them succeed once in 24 times at a success rate of 0.9; all of three, most of the time
EvaluateFn = Callable[[GaussianPolicy], EvalResult]  # policy -> evaluation by the simulator
CrosscheckFn = Callable[[GaussianPolicy, int, RewardModel], CrosscheckResult]
"""(policy, iteration, model) -> verification of the model's successes by the simulator."""


class ModelTeacher(Protocol):
    """Changes the reward model between iterations."""

    def model_at(self, iteration: int) -> RewardModel:
        """Return the model that pays in an iteration; it is asked for in order."""
        ...

    def first_iteration(self, iteration: int) -> int:
        """Return the iteration from which on success counts as that of the model that pays in an iteration."""
        ...


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


@dataclass(frozen=True, kw_only=True)
class RefineOptions:
    """What a refinement may be given beyond policy, model and settings."""

    evaluate_iteration: EvaluateFn | None = None
    """Evaluates the policy after each iteration, for the learning curve and the alarm."""
    teacher: ModelTeacher | None = None  # changes the model during the refinement; None: it stays as it is
    crosscheck: CrosscheckFn | None = None  # checks after each iteration whether the model's successes are successes
    demonstrations: DemoPairs | None = None
    """The demonstrations that the policy was cloned from, needed with an `imitation_coef`."""
    recorded: OfflineTransitions | None = None
    """Recorded transitions with the rewards of the environment's rule, needed by the algorithms that use them."""
    starts: StartPool | None = None  # starts of episodes, in place of a random pool of `start_pool_size`
    helper: Helper | None = None  # acts where the policy makes no progress, needed with `takeover.stall_steps`
    dist: DistContext = SINGLE_PROCESS  # The processes that share the environments. The first one evaluates and writes.


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
    observation, _ = reward_env.reset(seed=dist.env_seeds(stream_seed(config.seed, 0), env.num_envs))
    learner = select_learner(policy, config, reward_env, options)
    rollout_rewards = RolloutRewards(reward_env.rule, reward_env.params, policy, reward_env.critic_obs_dim, config.seed)
    resuming = (run.path / CHECKPOINT_DIR / MANIFEST_NAME).exists()
    inputs = refinement_inputs(config, policy, options.recorded)
    rows, env_state = load_refinement(learner, rollout_rewards, run, inputs) if resuming else ([], {})
    max_episode_steps: int | None = getattr(env, "max_episode_steps", None)
    first_rollouts = rollouts_until_full_episodes(max_episode_steps or 1, config.rollout_steps)
    restarted = rows[-1].get("restart_iteration", 0) if rows else 0
    reporter.table("refine", summarize_setup(env, learner, model, config))
    reward_env.check_rule_inputs(config.rollout_steps)
    cloned_eval = evaluate_imitated(evaluate, learner, reporter)
    if rows:
        if options.teacher is not None:
            model = replace_model(reward_env, options.teacher.model_at(len(rows) - 1))
        seeds = dist.env_seeds(stream_seed(config.seed, len(rows)), env.num_envs)
        observation = reward_env.load_state_dict(env_state, seeds)
        if not has_env_state(env_state):
            rollout_rewards.end_episodes()
            restarted = len(rows)
    reward_env.pop_stats()  # the time of the resets belongs to no iteration
    best = BestWeights(run, max_episode_steps, writes=dist.rank == 0) if config.restore_best_weights else None
    with open_logger(run, reporter, config.wandb_project, dist.rank) as log:
        for iteration in reporter.track(range(len(rows), config.iterations), "refine", total=config.iterations):
            if has_used_episodes(rows, config) or has_converged(rows, config, options.teacher, first_rollouts + 1):
                break
            if options.teacher is not None and (taught := options.teacher.model_at(iteration)) is not model:
                model = replace_model(reward_env, taught)
                observation = restart_episodes(reward_env, rollout_rewards, stream_seed(config.seed, iteration))
                restarted = iteration
            heuristic = make_heuristic(reward_env.rule, config, rows, first_rollouts + 1)
            iteration_args = (reward_env, learner, rollout_rewards, observation, iteration, config, heuristic)
            acted = None if best is None else copy.deepcopy(policy)
            observation, row = run_iteration(*iteration_args)
            row |= {"restart_iteration": restarted, "has_full_episodes": iteration >= restarted + first_rollouts}
            rows.append(evaluate_iteration(row, policy, model, options))
            rows[-1]["alarm"] = detect_reward_hacking(rows, first_rollouts + 1)
            if best is not None and acted is not None:
                best.keep(acted, rows, first_comparable(rows, options.teacher))
            save_refinement(learner, rollout_rewards, reward_env, rows, run, log, inputs)
            reporter.log(format_row(rows[-1]))
    restored = None if best is None else best.restore(policy, rows, first_comparable(rows, options.teacher))
    if best is not None:
        reporter.log(describe_restored(restored))
    if dist.rank == 0:
        save_policy(run.path / POLICY_DIR, policy)
    evals = {"cloned_eval": cloned_eval, "refined_eval": evaluate_on_rank0(evaluate, policy, dist)}
    pool = None if reward_env.curriculum is None else reward_env.curriculum.pool
    return RefineResult(policy=policy, **evals, log_rows=tuple(rows), restored_iteration=restored, start_pool=pool)


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


def select_learner(
    policy: GaussianPolicy, config: RefineConfig, reward_env: RewardEnv, options: RefineOptions
) -> Learner:
    """Return the learner of the algorithm, with the data that it learns from."""
    if config.algorithm in USES_RECORDED:
        return make_hybrid_learner(policy, config, reward_env, options.recorded)
    learner_args = (policy, config, reward_env.critic_obs_dim, options.demonstrations, options.dist)
    return make_learner(*learner_args, critic_sees_state=reward_env.critic_sees_state)


def validate_config(
    config: RefineConfig, policy: GaussianPolicy, demonstrations: DemoPairs | None, dist: DistContext, *, teaches: bool
) -> None:
    """Raise `UserError` if inputs that the settings need are missing."""
    if config.start_pool_size and dist.world_size > 1:
        raise UserError(f"start_pool_size={config.start_pool_size} works in one process only: set start_pool_size=0")
    if config.archive.share and dist.world_size > 1:
        raise UserError(f"archive.share={config.archive.share} works in one process only: set archive.share=0")
    if teaches and dist.world_size > 1:
        raise UserError("teach.every works in one process only: set teach.every=0")
    if config.algorithm in USES_RECORDED and dist.world_size > 1:
        raise UserError(f"algorithm={config.algorithm} works in one process only")
    if not config.imitation_coef:
        return
    if config.algorithm in USES_RECORDED:
        raise UserError(f"imitation_coef is of algorithm=ppo, not of {config.algorithm}: set it to 0")
    if demonstrations is None:
        raise UserError(f"imitation_coef={config.imitation_coef} needs demonstrations, and there are none")
    obs_dim, action_dim = demonstrations.observation.shape[1], demonstrations.action.shape[1]
    if (obs_dim, action_dim) != (policy.spec.obs_dim, policy.spec.action_dim):
        raise UserError(
            f"the demonstrations have observations of size {obs_dim} and actions of size {action_dim}, the policy "
            f"{policy.spec.obs_dim} and {policy.spec.action_dim}: it was not cloned from them"
        )


def validate_options(config: RefineConfig, options: RefineOptions) -> None:
    """Raise `UserError` if the given helper or starts do not fit the settings."""
    if (options.helper is None) != (not config.takeover.stall_steps):
        raise UserError(f"takeover.stall_steps={config.takeover.stall_steps} and a helper belong together")
    if options.starts is not None and config.start_pool_size:
        raise UserError(f"starts and start_pool_size={config.start_pool_size} both set the pool of start states")
    if options.starts is not None and options.dist.world_size > 1:
        raise UserError("given starts work in one process only")


def rollouts_until_full_episodes(max_episode_steps: int, rollout_steps: int) -> int:
    """Return the number of rollouts, after all episodes restarted, in which no episode can reach the time limit.

    Only episodes that end early can have ended in them, so their rates are not those of the policy.
    """
    return -(-max_episode_steps // rollout_steps) - 1


def evaluate_iteration(row: LogRow, policy: GaussianPolicy, model: RewardModel, options: RefineOptions) -> LogRow:
    """Return the row of an iteration with its evaluation, its verification and their time."""
    start_time, dist = time.perf_counter(), options.dist
    row |= eval_columns(evaluate_on_rank0(options.evaluate_iteration, policy, dist))
    row |= crosscheck_columns(crosscheck_on_rank0(options.crosscheck, policy, row["iteration"], model, dist))
    row["seconds"]["evaluate"] = time.perf_counter() - start_time
    return row


def evaluate_on_rank0(evaluate: EvaluateFn | None, policy: GaussianPolicy, dist: DistContext) -> EvalResult | None:
    """Evaluate on rank 0, and return the result on all processes; None if rank 0 does not evaluate."""
    return broadcast_from_rank0(dist, EvalResult, None if evaluate is None else evaluate(policy))


def crosscheck_on_rank0(
    crosscheck: CrosscheckFn | None, policy: GaussianPolicy, iteration: int, model: RewardModel, dist: DistContext
) -> CrosscheckResult | None:
    """Verify on rank 0, and return the result on all processes; None if rank 0 does not verify."""
    return broadcast_from_rank0(
        dist, CrosscheckResult, None if crosscheck is None else crosscheck(policy, iteration, model)
    )


def broadcast_from_rank0(dist: DistContext, result_type: type[R], result: R | None) -> R | None:
    """Return the result of rank 0, on all processes."""
    fields: dict[str, Any] | None = dist.all_gather_object(None if result is None else vars(result))[0]
    return None if fields is None else result_type(**fields)


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


def replace_model(env: RewardEnv, model: RewardModel) -> RewardModel:
    """Let another model pay, and return it."""
    assert isinstance(env, LearnedRewardEnv)
    env.replace_model(model)
    return model


def first_comparable(rows: list[LogRow], teacher: ModelTeacher | None) -> int:
    """Return the first iteration whose successes are those of the model that pays in the last one."""
    return 0 if teacher is None or not rows else teacher.first_iteration(len(rows) - 1)


def restart_episodes(env: RewardEnv, rollout_rewards: RolloutRewards, seed: int) -> npt.NDArray[np.floating]:
    """Begin new episodes in all environments, and return their first observations."""
    observation, _ = env.reset(seed=seed)
    rollout_rewards.end_episodes()
    env.pop_stats()  # the time of the resets belongs to no iteration
    return observation


def has_used_episodes(rows: list[LogRow], config: RefineConfig) -> bool:
    """Return whether `max_episodes` training episodes have ended; raise `UserError` if none trained the policy."""
    if config.max_episodes is None or sum(map(training_episodes, rows)) < config.max_episodes:
        return False
    if len(rows) <= config.critic_warmup_iterations:
        raise UserError(
            f"max_episodes={config.max_episodes} ended in the first {len(rows)} iterations, in which only the critic "
            f"is trained: lower the number of environments, rollout_steps={config.rollout_steps} or "
            f"critic_warmup_iterations={config.critic_warmup_iterations}"
        )
    return True


def has_converged(
    rows: list[LogRow], config: RefineConfig, teacher: ModelTeacher | None = None, episode_iterations: int = 1
) -> bool:
    """Return whether the success rate stayed at `stop_success` after the warm-up, since the model changed last.

    The last `stop_patience` iterations count, and as many before them as have `MIN_STOP_EPISODES` together. They are at
    least `episode_iterations`, in which every episode ends: until then, failures that began together may still run.
    """
    start = max(config.critic_warmup_iterations, first_comparable(rows, teacher))
    fewest = max(config.stop_patience, episode_iterations)
    num_iterations = num_episodes = 0
    for row in reversed(rows[start:]):
        if not row["has_full_episodes"] or row["success"] is None:
            continue
        if row["success"] < config.stop_success:
            return False
        num_iterations, num_episodes = num_iterations + 1, num_episodes + row["episodes"]
        if num_iterations >= fewest and num_episodes >= MIN_STOP_EPISODES:
            return True
    return False
