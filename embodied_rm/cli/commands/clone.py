"""`embodied-rm clone`: behaviour cloning of one task's demonstrations, judged by the simulator."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.places import POLICY, dataset_in
from embodied_rm.cli.worlds import WorldConfig, make_judge
from embodied_rm.data.lerobot_read import LeRobotDataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError, choices
from embodied_rm.rl.bc import CloneConfig, clone
from embodied_rm.rl.policy import save_policy
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Episode
from sim.registry import make_task


@dataclass(frozen=True, kw_only=True)
class CloneCommand(CloneConfig):
    """Behaviour cloning of one task of a dataset."""

    task: str
    data: Path
    episodes: int = 200
    world: WorldConfig = field(default_factory=WorldConfig)


def start(config: CloneCommand, run: RunFolder, reporter: Reporter) -> None:
    """Imitate, judge, and leave policy and metrics in the run folder."""
    task = make_task(config.task).name
    judge = make_judge(config.task, config.world, episodes=config.episodes, seed=config.seed)
    episodes = demonstrations(LeRobotDataset(dataset_in(config.data)), task, reporter)
    reporter.table(
        "clone",
        {
            "task": task,
            "demonstrations": f"{config.demonstrations} of {len(episodes)}",
            "policy": f"{config.hidden} hidden units, {config.steps} steps of {config.batch} transitions",
            "judged over": f"{config.episodes} episodes",
        },
    )
    policy, fit = clone(episodes, narrow(config, CloneConfig))
    save_policy(run.path / POLICY, policy, task=task)
    verdict = judge(policy)
    reporter.table("cloned", {**asdict(fit), **verdict.as_dict()})
    run.write_json("metrics.json", {"clone": asdict(fit), "cloned_success": verdict.as_dict()})


def demonstrations(data: EpisodeSource, task: str, reporter: Reporter) -> list[Episode]:
    """The successful episodes of one task. Raises `UserError` when the dataset has none."""
    tasks = {meta.text.get("task", "") for meta in data.meta} - {""}
    rows = [i for i, meta in enumerate(data.meta) if meta.text.get("task") == task and meta.success]
    if not rows:
        known = choices(task, tasks, "recorded task")
        raise UserError(f"the dataset has no successful episode of {task}" if task in tasks else known)
    # Cloning reads states and actions only; an episode cannot do without a view.
    return [data.episode(i, views=data.views[:1]) for i in reporter.track(rows, "read demonstrations")]


COMMAND = Command(schema=CloneCommand, start=start)
