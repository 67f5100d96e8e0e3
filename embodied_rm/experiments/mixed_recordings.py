"""Recordings of mixed quality: demonstrations, half of them failures, and noisy rollouts of a policy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import UserError
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.tabletop import clone_policy, collect_episodes
from embodied_rm.tabletop.clone_policy import demonstration_rows
from embodied_sim.registry import make_task

NUM_BEHAVIOR_DEMONSTRATIONS = 5  # demonstrations of the policy whose noisy rollouts are recorded


class MethodCell(NamedTuple):
    """One policy: its recordings and the method that learns from them."""

    seed: int
    task: str
    method: str

    @property
    def folder(self) -> str:
        """Folder of the recordings, in the run folder."""
        return f"{make_task(self.task).name}/{self.seed}"

    @property
    def name(self) -> str:
        """Name in the results cache, and folder of the policy."""
        return f"{self.folder}/{self.method}"


class MixedSizes(Protocol):
    """Numbers of recorded episodes."""

    @property
    def num_demonstrations(self) -> int:
        """Demonstrations; half of them are failures."""

    @property
    def num_rollouts(self) -> int:
        """Rollouts with exploration noise."""


def check_tasks(tasks: Sequence[str]) -> None:
    """Raise `UserError` if there is no task, or `SimError` for an unknown one."""
    if not tasks:
        raise UserError("tasks=[] measures nothing: name at least one")
    for task in tasks:
        make_task(task)


def check_methods(methods: Sequence[str], known: Sequence[str]) -> None:
    """Raise `UserError` for unknown methods."""
    if unknown := set(methods) - set(known):
        raise UserError(f"methods must be among {', '.join(known)}, got {', '.join(sorted(unknown))}")


def check_half_failures(num_demonstrations: int) -> None:
    """Raise `UserError` unless half of the demonstrations can be failures."""
    if num_demonstrations < 2 or num_demonstrations % 2:
        raise UserError(
            f"num_demonstrations must be even and >= 2, got {num_demonstrations}: half of them are failures"
        )


def mixed_demonstrations(task: str, num_demonstrations: int, seed: int) -> collect_episodes.CollectConfig:
    """Return how demonstrations are recorded of which half are failures."""
    half = num_demonstrations // 2
    return collect_episodes.CollectConfig(
        tasks=(task,), num_successes=half, num_failures=half, action_noise=0.1, speed_range=(1.0, 1.0), seed=seed
    )


def record_mixed(task: str, seed: int, folder: str, sizes: MixedSizes, pipeline: Pipeline) -> Path:
    """Record demonstrations, half of them failures, and noisy rollouts of a policy of a few of them.

    Args:
        task: The task.
        seed: Of all recordings and of the policy.
        folder: Where to record, in the run folder of the pipeline; what is finished there is kept.
        sizes: Numbers of episodes.
        pipeline: Runs the commands.

    Returns:
        The run folder of the recordings.
    """
    demonstrations = mixed_demonstrations(task, sizes.num_demonstrations, seed)
    path = pipeline.run.path / folder
    pipeline.run_command("collect", f"{folder}/demonstrations", collect_episodes.COMMAND, demonstrations)
    behavior = clone_policy.CloneCommand(
        task=task,
        data=path / "demonstrations",
        num_demonstrations=min(NUM_BEHAVIOR_DEMONSTRATIONS, demonstrations.num_successes),
        eval_episodes=1,
        seed=seed,
    )
    pipeline.run_command("clone", f"{folder}/behavior", clone_policy.COMMAND, behavior)
    rollouts: dict[str, Any] = {"policies": (str(path / "behavior"),), "rollouts_per_policy": sizes.num_rollouts}
    mixed = replace(demonstrations, **rollouts)
    pipeline.run_command("collect", f"{folder}/mixed", collect_episodes.COMMAND, mixed)
    return path / "mixed"


def clone_successes(
    task: str, seed: int, data: Path, eval_episodes: int, folder: str, pipeline: Pipeline
) -> dict[str, Any]:
    """Clone all recorded successes of a task into a folder of the pipeline's run; return the metrics of `clone`."""
    source = LeRobotDataset(resolve_dataset(data))
    config = clone_policy.CloneCommand(
        task=task,
        data=data,
        num_demonstrations=len(demonstration_rows(source, make_task(task).name, failures=False)),
        eval_episodes=eval_episodes,
        seed=seed,
    )
    return pipeline.run_command("clone", folder, clone_policy.COMMAND, config)
