"""When a refinement ends, and which of its iterations can be compared."""

from embodied_rm.errors import UserError
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import ModelTeacher
from embodied_rm.rl.watch.log_rows import LogRow, training_episodes

MIN_STOP_EPISODES = 30  # all of them succeed once in 24 times at a success rate of 0.9; all of three, most of the time


def rollouts_until_full_episodes(max_episode_steps: int, rollout_steps: int) -> int:
    """Return the number of rollouts, after all episodes restarted, in which no episode can reach the time limit.

    Only episodes that end early can have ended in them, so their rates are not those of the policy.
    """
    return -(-max_episode_steps // rollout_steps) - 1


def first_comparable(rows: list[LogRow], teacher: ModelTeacher | None) -> int:
    """Return the first iteration whose successes are those of the model that pays in the last one."""
    return 0 if teacher is None or not rows else teacher.first_iteration(len(rows) - 1)


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
