"""What differs between tasks when their policies are cloned and refined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from embodied_rm.cli.commands.clone import CloneCommand
from embodied_rm.cli.commands.refine import RefineCommand


@dataclass(frozen=True, kw_only=True)
class TaskSizes:
    """Takes the place of what `clone` and `refine` say."""

    demonstrations: int
    rollout_steps: int
    iterations: int
    log_std_init: float
    gamma: float
    gae_lambda: float


def imitation(
    clone: CloneCommand, task: str, data: Path, sizes: TaskSizes, checkpoint: Path | None = None
) -> CloneCommand:
    """How a policy of this task is cloned; `checkpoint`: the reward model, where cloning asks one."""
    return replace(
        clone,
        task=task,
        data=data,
        checkpoint=checkpoint,
        demonstrations=sizes.demonstrations,
        log_std_init=sizes.log_std_init,
    )


def refinement(
    refine: RefineCommand, task: str, policy: Path, checkpoint: Path | None, sizes: TaskSizes
) -> RefineCommand:
    """How it is refined."""
    return replace(
        refine,
        task=task,
        policy=policy,
        checkpoint=checkpoint,
        rollout_steps=sizes.rollout_steps,
        iterations=sizes.iterations,
        ppo=replace(refine.ppo, gamma=sizes.gamma, gae_lambda=sizes.gae_lambda),
    )


def sized(sizes: Mapping[str, TaskSizes]) -> list[str]:
    """The sizes of tasks as lines of Markdown."""
    rows = {task: asdict(each) for task, each in sizes.items()}
    names = list(next(iter(rows.values())))
    return [
        f"| task | {' | '.join(name.replace('_', ' ') for name in names)} |",
        "|---" * (1 + len(names)) + "|",
        *(f"| {task} | {' | '.join(f'{row[name]:g}' for name in names)} |" for task, row in rows.items()),
    ]
