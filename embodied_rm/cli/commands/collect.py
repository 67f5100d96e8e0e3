"""`embodied-rm collect`: scripted experts, and actors who fail on purpose, become a dataset."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gymnasium.spaces.utils import flatdim

from embodied_rm.cli.command import Command
from embodied_rm.cli.places import DATASET
from embodied_rm.cli.players import exploring, task_of
from embodied_rm.cli.splits import NONE, Split, check_split
from embodied_rm.cli.worlds import WorldConfig, make_worlds
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.record import Act, Recorder
from embodied_rm.errors import UserError
from embodied_rm.rl.seeds import stream_seed
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Episode
from sim.actors import AFTERWARDS, SUCCESS, WRONG_OBJECT, ScriptedActor, outcomes
from sim.vec_env import TabletopVecEnv

PARTS: tuple[tuple[str, ...], ...] = ((SUCCESS,), (), (AFTERWARDS,))
"""What actors are after in each part of a task's recording; (): to fail."""
ROLLOUT = "rollout"
"""What an episode of a policy is called."""


@dataclass(frozen=True, kw_only=True)
class CollectConfig:
    """What to record."""

    split: Split = field(default_factory=Split)
    tasks: tuple[str, ...] = ()
    """Of the split's tasks; none: all of them."""
    successes: int = 40
    failures: int = 20
    afterwards: int = 0
    policies: tuple[str, ...] | None = None
    """Run folders of clone or refine: who plays its task too."""
    rollouts: int | None = None
    """Episodes of each of them."""
    every: int = 1
    noise: float = 0.3
    pace: tuple[float, ...] = (0.6, 1.0)
    seed: int = 0
    world: WorldConfig = field(default_factory=WorldConfig)

    def __post_init__(self) -> None:
        counts = self.successes, self.failures, self.afterwards
        if min(counts) < 0 or not (any(counts) or self.rollouts):
            raise UserError("nothing to record: successes={}, failures={}, afterwards={}".format(*counts))
        if len(self.pace) != 2 or not 0 < self.pace[0] <= self.pace[1] <= 1:
            raise UserError(f"pace must be two shares [slowest,fastest] in (0, 1], got {list(self.pace)}")
        if self.noise < 0:
            raise UserError(f"noise must be >= 0, got {self.noise}")
        if (self.policies is None) != (self.rollouts is None):
            raise UserError("policies=[...], who plays, and rollouts=..., episodes of each, need each other")
        if self.rollouts is not None and self.rollouts < 1:
            raise UserError(f"rollouts must be >= 1, got {self.rollouts}")


def start(config: CollectConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record every task into one dataset. Raises `UserError` where the split has other tasks or worlds."""
    check_split(config.split)
    tasks = config.split.chosen(config.tasks)
    if not tasks:
        raise UserError(f"split={config.split.name} has no tasks to record; embodied-rm tasks lists those there are")
    for folder in config.policies or ():
        if task_of(folder) not in tasks:
            raise UserError(f"the policy in {folder} plays {task_of(folder)}, which is none of {', '.join(tasks)}")
    config = replace(config, tasks=tasks, world=config.split.worlds(config.world))
    reporter.table(
        "collect",
        {
            **({} if config.split.name == NONE else {"split": config.split.name}),
            "tasks": config.tasks,
            "episodes of each": f"{config.successes} successes, {config.failures} failures"
            + (f", {config.afterwards} afterwards" if config.afterwards else "")
            + (f", {config.rollouts} of each policy" if config.rollouts else ""),
            "views": f"{', '.join(config.world.views)} at {config.world.image_size} pixels",
            "worlds": config.world.num_envs,
        },
    )
    run.write_json("metrics.json", {"collect": collect(config, run, reporter)})


def collect(config: CollectConfig, run: RunFolder, reporter: Reporter) -> dict[str, object]:
    """Write `<run>/dataset`; the counts of what is in it. `config` names tasks and worlds as they are recorded."""
    clear(run.path)
    kinds, done, frames = Counter[str](), 0, 0
    keeps_state = len(set(map(observation_size, config.tasks))) == 1
    if not keeps_state:
        reporter.note(
            "the tasks' observations differ in size, so the dataset has no state: no policy can be cloned from it"
        )
    with DatasetWriter(run.path / DATASET, robot_type=Path(config.world.robot).stem) as writer:
        for number, task in enumerate(config.tasks):
            total = config.successes + config.failures + config.afterwards
            total += (config.rollouts or 0) * len(players(config, task))
            for episode in reporter.track(record(task, config, number), f"record {task}", total=total):
                state = episode.state if keeps_state else None
                writer.add(replace(episode, name=f"episode_{kinds.total():06d}", state=state))
                frames += len(episode)
                kinds[f"{episode.meta['task']}: {episode.meta['outcome']}"] += 1
                done += episode.success is True
    reporter.table("recorded", {**dict(sorted(kinds.items())), "of those, successful": done, "frames": frames})
    return {"episodes": kinds.total(), "successes": done, "frames": frames}


def clear(folder: Path) -> None:
    """Remove what a recording of this very run left that was killed: half a dataset, or one that nobody counted."""
    for left in (folder / DATASET, *folder.glob(f".{DATASET}.partial-*")):
        if left.exists():
            shutil.rmtree(left)


def observation_size(task: str) -> int:
    """How many numbers a policy for that task observes."""
    env = TabletopVecEnv(task, 1, views=())
    try:
        return flatdim(env.single_observation_space)
    finally:
        env.close()


def record(task: str, config: CollectConfig, number: int = 0) -> Iterator[Episode]:
    """Episodes of one task: first the expert's, then the failures, then successes with what comes after them, then
    those of policies. `number` sets its seeds apart from other tasks'.

    Episodes of the expert and of policies end at success, the others at the time limit: some undo what they had
    achieved. There are no episodes with an afterwards of a task that says of none.
    """
    for part, count in enumerate((config.successes, config.failures, config.afterwards)):
        if not count:
            continue
        env = make_worlds(task, config.world, ends_on_success=part == 0, holdout=config.split.holdout)
        kinds = kinds_of(part, env)
        seed = stream_seed(config.seed, number, part)
        try:
            yield from play(env, kinds, count, config, seed) if kinds else ()
        finally:
            env.close()
    for part, folder in enumerate(players(config, task), start=len(PARTS)):
        env = make_worlds(task, config.world, ends_on_success=True, holdout=config.split.holdout)
        seed = stream_seed(config.seed, number, part)
        try:
            act = exploring(Path(folder), env, seed)
            yield from filmed(env, act, config.rollouts or 0, config, seed, lambda row: ROLLOUT)
        finally:
            env.close()


def players(config: CollectConfig, task: str) -> tuple[str, ...]:
    """The folders of the policies that play a task."""
    return tuple(folder for folder in config.policies or () if task_of(folder) == task)


def kinds_of(part: int, env: TabletopVecEnv) -> tuple[str, ...]:
    """What actors are after in the first, second and third part of a task's recording."""
    known = outcomes(env)
    if part == 1:
        return failing_kinds([kind for kind in known if kind != AFTERWARDS], env.task.names_object)
    return tuple(kind for kind in PARTS[part] if kind in known)


def failing_kinds(kinds: Sequence[str], names_object: bool) -> tuple[str, ...]:
    """The failures in the order in which actors take them; where the instruction names one of several objects, every
    other one mistakes it.

    A mistaken object then looks like a success in all but the words, so it takes as many of them to learn to read.
    """
    others = [kind for kind in kinds if kind not in (SUCCESS, WRONG_OBJECT)]
    if not names_object:
        return (*others, WRONG_OBJECT)
    return tuple(kind for other in others for kind in (WRONG_OBJECT, other))


def play(env: TabletopVecEnv, kinds: Sequence[str], count: int, config: CollectConfig, seed: int) -> Iterator[Episode]:
    """`count` episodes of actors who are after the given outcomes, in turn."""
    actor = ScriptedActor(env, kinds, seed=seed, noise=config.noise, pace=(config.pace[0], config.pace[1]))

    def act(_: npt.NDArray[np.float32], begun: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        actor.begin(begun)
        return actor.act()

    return filmed(env, act, count, config, seed, lambda row: str(actor.kinds[row]))


def filmed(
    env: TabletopVecEnv, act: Act, count: int, config: CollectConfig, seed: int, outcome: Callable[[int], str]
) -> Iterator[Episode]:
    """`count` episodes of whoever acts; `outcome`: what became of a row's, in a word."""

    def describe(row: int) -> dict[str, str]:
        what = {"task": env.task.name, "goal": env.goals[row], "outcome": outcome(row)}
        return {**what, "split": config.split.name, "seed": str(config.seed), **env.drawn(row)}

    return iter(Recorder(env, act, episodes=count, every=config.every, seed=seed, describe=describe))


COMMAND = Command(schema=CollectConfig, start=start)
