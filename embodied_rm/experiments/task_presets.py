"""Settings of cloning and refinement that differ between tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from embodied_rm.tabletop.clone_policy import CloneCommand
from embodied_rm.tabletop.refine_policy import RefineCommand


@dataclass(frozen=True, kw_only=True)
class TaskPreset:
    """Values that override those of `clone` and `refine`."""

    num_demonstrations: int
    rollout_steps: int
    iterations: int
    log_std_init: float
    gamma: float
    gae_lambda: float


def preset_clone_config(
    clone: CloneCommand, task: str, data: Path, preset: TaskPreset, checkpoint: Path | None = None
) -> CloneCommand:
    """Return the clone config of a task; `checkpoint` is the reward model, if cloning uses one."""
    return replace(
        clone,
        task=task,
        data=data,
        checkpoint=checkpoint,
        num_demonstrations=preset.num_demonstrations,
        log_std_init=preset.log_std_init,
    )


def preset_refine_config(
    refine: RefineCommand, task: str, policy: Path, checkpoint: Path | None, preset: TaskPreset
) -> RefineCommand:
    """Return the refine config of a task."""
    return replace(
        refine,
        task=task,
        policy=policy,
        checkpoint=checkpoint,
        rollout_steps=preset.rollout_steps,
        iterations=preset.iterations,
        ppo=replace(refine.ppo, gamma=preset.gamma, gae_lambda=preset.gae_lambda),
    )


def preset_table(presets: Mapping[str, TaskPreset]) -> list[str]:
    """Return the presets as lines of a Markdown table."""
    rows = {task: asdict(preset) for task, preset in presets.items()}
    names = list(next(iter(rows.values())))
    return [
        f"| task | {' | '.join(name.replace('_', ' ') for name in names)} |",
        "|---" * (1 + len(names)) + "|",
        *(f"| {task} | {' | '.join(f'{row[name]:g}' for name in names)} |" for task, row in rows.items()),
    ]
