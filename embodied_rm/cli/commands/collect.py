"""`embodied-rm collect`: scripted experts, and actors who fail on purpose, become a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gymnasium.spaces.utils import flatdim

from embodied_rm.cli.command import Command
from embodied_rm.cli.places import DATASET
from embodied_rm.cli.splits import NONE, Split, check_split
from embodied_rm.cli.worlds import WorldConfig, make_worlds
from embodied_rm.data.lerobot_write import DatasetWriter
from embodied_rm.data.record import Recorder
from embodied_rm.errors import UserError
from embodied_rm.rl.seeds import stream_seed
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Episode
from sim.actors import AFTERWARDS, SUCCESS, WRONG_OBJECT, ScriptedActor, outcomes
from sim.vec_env import TabletopVecEnv


@dataclass(frozen=True, kw_only=True)
class CollectConfig:
    """What to record."""

    split: Split = field(default_factory=Split)
    tasks: tuple[str, ...] = ()
    """Of the split's tasks; none: all of them."""
    successes: int = 40
    failures: int = 20
    afterwards: int = 0
    every: int = 1
    noise: float = 0.3
    pace: tuple[float, ...] = (0.6, 1.0)
    seed: int = 0
    world: WorldConfig = field(default_factory=WorldConfig)

    def __post_init__(self) -> None:
        counts = self.successes, self.failures, self.afterwards
        if min(counts) < 0 or not any(counts):
            raise UserError("nothing to record: successes={}, failures={}, afterwards={}".format(*counts))
        if len(self.pace) != 2 or not 0 < self.pace[0] <= self.pace[1] <= 1:
            raise UserError(f"pace must be two shares [slowest,fastest] in (0, 1], got {list(self.pace)}")
        if self.noise < 0:
            raise UserError(f"noise must be >= 0, got {self.noise}")


def start(config: CollectConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record every task into one dataset. Raises `UserError` where the split has other tasks or worlds."""
    check_split(config.split)
    tasks = config.split.chosen(config.tasks)
    if not tasks:
        raise UserError(f"split={config.split.name} has no tasks to record; embodied-rm tasks lists those there are")
    config = replace(config, tasks=tasks, world=config.split.worlds(config.world))
    reporter.table(
        "collect",
        {
            **({} if config.split.name == NONE else {"split": config.split.name}),
            "tasks": config.tasks,
            "episodes of each": f"{config.successes} successes, {config.failures} failures"
            + (f", {config.afterwards} afterwards" if config.afterwards else ""),
            "views": f"{', '.join(config.world.views)} at {config.world.image_size} pixels",
            "worlds": config.world.num_envs,
        },
    )
    run.write_json("metrics.json", {"collect": collect(config, run, reporter)})


def collect(config: CollectConfig, run: RunFolder, reporter: Reporter) -> dict[str, object]:
    """Write `<run>/dataset`; the counts of what is in it. `config` names tasks and worlds as they are recorded."""
    kinds, done, frames = Counter[str](), 0, 0
    keeps_state = len(set(map(observation_size, config.tasks))) == 1
    if not keeps_state:
        reporter.note(
            "the tasks' observations differ in size, so the dataset has no state: no policy can be cloned from it"
        )
    with DatasetWriter(run.path / DATASET, robot_type=Path(config.world.robot).stem) as writer:
        for number, task in enumerate(config.tasks):
            total = config.successes + config.failures + config.afterwards
            for episode in reporter.track(record(task, config, number), f"record {task}", total=total):
                state = episode.state if keeps_state else None
                writer.add(replace(episode, name=f"episode_{kinds.total():06d}", state=state))
                frames += len(episode)
                kinds[f"{episode.meta['task']}: {episode.meta['outcome']}"] += 1
                done += episode.success is True
    reporter.table("recorded", {**dict(sorted(kinds.items())), "of those, successful": done, "frames": frames})
    return {"episodes": kinds.total(), "successes": done, "frames": frames}


def observation_size(task: str) -> int:
    """How many numbers a policy for that task observes."""
    env = TabletopVecEnv(task, 1, views=())
    try:
        return flatdim(env.single_observation_space)
    finally:
        env.close()


def record(task: str, config: CollectConfig, number: int = 0) -> Iterator[Episode]:
    """Episodes of one task: first the expert's, then the failures, then successes with what comes after them. `number`
    sets its seeds apart from other tasks'.

    The expert's episodes end at success, the others at the time limit: some undo what they had achieved. There are no
    episodes with an afterwards of a task that says of none.
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


def kinds_of(part: int, env: TabletopVecEnv) -> tuple[str, ...]:
    """What actors are after in the first, second and third part of a task's recording."""
    known = outcomes(env)
    if part == 1:
        return failing_kinds([kind for kind in known if kind != AFTERWARDS], env.task.names_object)
    return tuple(kind for kind in ((SUCCESS,), (), (AFTERWARDS,))[part] if kind in known)


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

    def describe(row: int) -> dict[str, str]:
        what = {"task": env.task.name, "goal": env.goals[row], "outcome": str(actor.kinds[row])}
        return {**what, "split": config.split.name, "seed": str(config.seed), **env.drawn(row)}

    return iter(Recorder(env, act, episodes=count, every=config.every, seed=seed, describe=describe))


COMMAND = Command(schema=CollectConfig, start=start)
