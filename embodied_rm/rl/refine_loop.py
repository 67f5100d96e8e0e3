"""The iterations of a refinement, from the first one or from where an interrupted run ended."""

import copy
import time
from typing import Any, TypeVar

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.distributed import DistContext
from embodied_rm.logs import MetricsLogger
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rl.best_weights import BestWeights
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.envs.reward_env import RewardEnv, has_env_state
from embodied_rm.rl.iteration import Learner, make_heuristic, make_hybrid_learner, make_learner, run_iteration
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.refine_checkpoint import CHECKPOINT_DIR, load_refinement, refinement_inputs, save_refinement
from embodied_rm.rl.refine_config import USES_RECORDED, RefineConfig
from embodied_rm.rl.refine_options import CrosscheckFn, EvaluateFn, RefineOptions
from embodied_rm.rl.stop_rules import first_comparable, has_converged, has_used_episodes, rollouts_until_full_episodes
from embodied_rm.rl.watch.crosscheck import CrosscheckResult
from embodied_rm.rl.watch.evaluate_policy import EvalResult, stream_seed
from embodied_rm.rl.watch.hacking_monitor import detect_reward_hacking
from embodied_rm.rl.watch.log_rows import LogRow, crosscheck_columns, eval_columns
from embodied_rm.run_folder import RunFolder

R = TypeVar("R", EvalResult, CrosscheckResult)


class RefineLoop:
    """A refinement between two iterations: learner, episodes, and the rows of the iterations so far."""

    def __init__(
        self,
        env: RewardEnv,
        policy: GaussianPolicy,
        model: RewardModel,
        config: RefineConfig,
        run: RunFolder,
        options: RefineOptions,
    ) -> None:
        """Reset the environments, and restore the learner of an interrupted run; its episodes follow in `resume`.

        Args:
            env: Environments with the reward.
            policy: The policy, refined in place.
            model: Reward model that pays at first.
            config: Settings.
            run: Run folder; with a checkpoint, its run is continued.
            options: Further evaluations, data and processes.
        """
        self.env, self.policy, self.model = env, policy, model
        self._config, self._run, self._options = config, run, options
        dist = options.dist
        self._observation, _ = env.reset(seed=dist.env_seeds(stream_seed(config.seed, 0), env.num_envs))
        self.learner = select_learner(policy, config, env, options)
        self._rewards = RolloutRewards(env.rule, env.params, policy, env.critic_obs_dim, config.seed)
        self._inputs = refinement_inputs(config, policy, options.recorded)
        self.rows: list[LogRow] = []
        self._env_state: dict[str, Any] = {}
        if (run.path / CHECKPOINT_DIR / MANIFEST_NAME).exists():
            self.rows, self._env_state = load_refinement(self.learner, self._rewards, run, self._inputs)
        self._restart_iteration: int = self.rows[-1].get("restart_iteration", 0) if self.rows else 0
        max_steps = env.params.max_episode_steps
        self._first_rollouts = rollouts_until_full_episodes(max_steps or 1, config.rollout_steps)
        self._best = BestWeights(run, max_steps, writes=dist.rank == 0) if config.restore_best_weights else None

    def resume(self) -> None:
        """Restore the running episodes of an interrupted run; start new ones if that is not possible."""
        if self.rows:
            if self._options.teacher is not None:
                self._replace_model(self._options.teacher.model_at(len(self.rows) - 1))
            seeds = self._options.dist.env_seeds(stream_seed(self._config.seed, len(self.rows)), self.env.num_envs)
            self._observation = self.env.load_state_dict(self._env_state, seeds)
            if not has_env_state(self._env_state):
                self._rewards.end_episodes()
                self._restart_iteration = len(self.rows)
        self._env_state = {}
        self.env.pop_stats()  # the time of the resets belongs to no iteration

    def is_done(self) -> bool:
        """Return whether a limit of episodes is reached, or all of the last ones succeeded."""
        if has_used_episodes(self.rows, self._config):
            return True
        return has_converged(self.rows, self._config, self._options.teacher, self._first_rollouts + 1)

    def run_iteration(self, iteration: int, log: MetricsLogger) -> None:
        """Collect a rollout, update the learner, evaluate, and store the checkpoint with the iteration's row."""
        self._ask_teacher(iteration)
        episode_iterations, restart = self._first_rollouts + 1, self._restart_iteration
        heuristic = make_heuristic(self.env.rule, self._config, self.rows, episode_iterations)
        acted = None if self._best is None else copy.deepcopy(self.policy)
        self._observation, row = run_iteration(
            self.env, self.learner, self._rewards, self._observation, iteration, self._config, heuristic
        )
        row |= {"restart_iteration": restart, "has_full_episodes": iteration >= restart + self._first_rollouts}
        self.rows.append(evaluate_iteration(row, self.policy, self.model, self._options))
        self.rows[-1]["alarm"] = detect_reward_hacking(self.rows, episode_iterations)
        if self._best is not None and acted is not None:
            self._best.keep(acted, self.rows, first_comparable(self.rows, self._options.teacher))
        save_refinement(self.learner, self._rewards, self.env, self.rows, self._run, log, self._inputs)

    def restore_best(self) -> int | None:
        """Give the policy its best weights, if they are kept and clearly better; return their iteration, else None."""
        if self._best is None:
            return None
        return self._best.restore(self.policy, self.rows, first_comparable(self.rows, self._options.teacher))

    def _ask_teacher(self, iteration: int) -> None:
        """Begin new episodes with the model of a teacher, if it changed."""
        if self._options.teacher is None or (taught := self._options.teacher.model_at(iteration)) is self.model:
            return
        self._replace_model(taught)
        self._observation, _ = self.env.reset(seed=stream_seed(self._config.seed, iteration))
        self._rewards.end_episodes()
        self.env.pop_stats()  # the time of the resets belongs to no iteration
        self._restart_iteration = iteration

    def _replace_model(self, model: RewardModel) -> None:
        """Let another model pay."""
        assert isinstance(self.env, LearnedRewardEnv)
        self.env.replace_model(model)
        self.model = model


def select_learner(
    policy: GaussianPolicy, config: RefineConfig, reward_env: RewardEnv, options: RefineOptions
) -> Learner:
    """Return the learner of the algorithm, with the data that it learns from."""
    if config.algorithm in USES_RECORDED:
        return make_hybrid_learner(policy, config, reward_env, options.recorded)
    learner_args = (policy, config, reward_env.critic_obs_dim, options.demonstrations, options.dist)
    return make_learner(*learner_args, critic_sees_state=reward_env.critic_sees_state)


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
