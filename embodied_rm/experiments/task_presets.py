"""Settings of cloning and refinement that differ between tasks."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

from embodied_rm.report.markdown import markdown_table
from embodied_rm.tabletop.clone_policy import CloneCommand
from embodied_rm.tabletop.refine_command import RefineCommand


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
    clone = replace(clone, num_demonstrations=preset.num_demonstrations, log_std_init=preset.log_std_init)
    return replace(clone, task=task, data=data, checkpoint=checkpoint)


def preset_refine_config(
    refine: RefineCommand, task: str, policy: Path, checkpoint: Path | None, preset: TaskPreset
) -> RefineCommand:
    """Return the refine config of a task."""
    ppo = replace(refine.ppo, gamma=preset.gamma, gae_lambda=preset.gae_lambda)
    refine = replace(refine, rollout_steps=preset.rollout_steps, iterations=preset.iterations, ppo=ppo)
    return replace(refine, task=task, policy=policy, checkpoint=checkpoint)


def preset_table(presets: Mapping[str, TaskPreset]) -> list[str]:
    """Return the presets as lines of a Markdown table."""
    header = ["task", *(field.name.replace("_", " ") for field in fields(TaskPreset))]
    rows = [(task, *(f"{value:g}" for value in astuple(preset))) for task, preset in presets.items()]
    return markdown_table(header, rows)
