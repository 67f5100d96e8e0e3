"""What a refinement may be given beyond its settings, and what fits together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rl.envs.curriculum import StartPool
from embodied_rm.rl.envs.takeover import Helper
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine_config import USES_RECORDED, RefineConfig
from embodied_rm.rl.watch.crosscheck import CrosscheckResult
from embodied_rm.rl.watch.evaluate_policy import EvalResult

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
    if teaches and config.reward.success_in_each_view:
        raise UserError(
            "teach.every fits the threshold of success to all views together: set reward.success_in_each_view=false"
        )
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
