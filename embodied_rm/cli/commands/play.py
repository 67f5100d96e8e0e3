"""`embodied-rm play`: watch the expert, a random policy or a stored one at a task, or a world break down again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embodied_rm.atomic_file import write_atomic
from embodied_rm.cli.command import Command
from embodied_rm.cli.players import calm
from embodied_rm.cli.worlds import WorldConfig, make_worlds
from embodied_rm.data.record import Act, Recorder
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import UserError, choices
from embodied_rm.report.clip import grid
from embodied_rm.report.sheet import SheetRow, draw_sheet
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Episode
from sim.actors import ScriptedActor
from sim.faults import Fault, read_fault
from sim.registry import find_task, make_task, task_names
from sim.replay import replay
from sim.robots import Robot, find_robot
from sim.task import Task
from sim.vec_env import VIEWS, TabletopVecEnv

VIDEO = "play.mp4"
PICTURE = "before.png"
"""Names inside the run folder."""
SLOW = 4
"""Time steps (5 ms) of a fault that are shown a second."""


@dataclass(frozen=True, kw_only=True)
class PlayConfig:
    """Who plays what, or which fault is played again."""

    task: str | None = None
    fault: Path | None = None
    policy: str = "expert"
    seed: int = 0
    world: WorldConfig = field(default_factory=lambda: WorldConfig(num_envs=4, views=VIEWS, image_size=192))

    def __post_init__(self) -> None:
        if self.world.image_size % 2:
            raise UserError(f"world.image_size must be even, for the video, got {self.world.image_size}")


def start(config: PlayConfig, run: RunFolder, reporter: Reporter) -> None:
    """Play a task or a fault. Raises `UserError` unless the config says which."""
    if config.fault is not None:
        play_fault(config.fault, config, run, reporter)
    elif config.task is not None:
        play_task(config.task, config, run, reporter)
    else:
        raise UserError("play needs task=..., a task, or fault=..., a file that world.faults kept; --help says more")


def play_fault(path: Path, config: PlayConfig, run: RunFolder, reporter: Reporter) -> None:
    """Let the world break down again; leave the pictures up to then and what the simulator said."""
    fault, world = read_fault(path), config.world
    seen = replay(
        fault,
        task_of_fault(path, fault, config.task),
        robot_of_fault(path, fault, world),
        views=world.views,
        image_size=world.image_size,
        backend=world.backend,
        device=world.device,
        renderer=world.renderer,
    )
    before = dict(zip(world.views, seen.pictures[0], strict=True))
    write_atomic(run.file(PICTURE), draw_sheet([SheetRow(caption=f"{fault.task}: {fault.why}", views=before)]))
    # The first picture stays for a second: where a world breaks at once it is the only one.
    film = np.concatenate([seen.pictures[:1].repeat(SLOW, axis=0), seen.pictures[1:]])
    write_video(run.file(VIDEO), grid([list(film.swapaxes(0, 1))]), SLOW)
    told = {"task": fault.task, "robot": fault.robot, "then": fault.why}
    after = {"time_steps": len(seen.pictures) - 1}
    reporter.table(f"fault {path}", {**told, "now": seen.why or "it did not diverge again", **after})
    run.write_json("metrics.json", {"play": {"fault": str(path), **told, "now": seen.why, **after}})


def task_of_fault(path: Path, fault: Fault, named: str | None) -> Task:
    """The task of a fault. A fault is data: a task file is run only where `named`, on the command line, says so.

    Raises `UserError` for a task of one's own that is not named, and where another task is.
    """
    if named is None:
        if fault.task not in task_names():
            raise UserError(
                f"{path} is a fault of {fault.task!r}, which is no task of this package; "
                "where it is your own, name its file again: task=my_task.py"
            )
        return find_task(fault.task)
    task = make_task(named)
    if task.name != fault.task:
        raise UserError(f"{path} is a fault of the task {fault.task}, got task={named}: leave task out")
    return task


def robot_of_fault(path: Path, fault: Fault, world: WorldConfig) -> Robot:
    """The robot of a fault; an arm of one's own is read only from the file that `world.robot` names.

    Raises `UserError` where that names none.
    """
    if not fault.robot.endswith(".xml"):
        return find_robot(fault.robot, world.tool, world.grip)
    if not world.robot.endswith(".xml"):
        raise UserError(
            f"{path} is a fault of an arm of your own, {fault.robot}: name its file again, world.robot=my_arm.xml"
        )
    return find_robot(world.robot, world.tool, world.grip)


def play_task(task: str, config: PlayConfig, run: RunFolder, reporter: Reporter) -> None:
    """Play one episode in every world; leave the video and the simulator's verdict."""
    worlds = make_worlds(task, config.world, ends_on_success=True)
    try:
        act = ACTS.get(config.policy, stored)(config, worlds)
        episodes = play(worlds, act, config, reporter)
    finally:
        worlds.close()
    write_video(run.file(VIDEO), grid([list(episode.views.values()) for episode in episodes]), episodes[0].fps)
    reporter.table(f"played {task}", {"policy": config.policy, **verdicts(episodes)})
    count = {"episodes": config.world.num_envs, "successes": sum(episode.success is True for episode in episodes)}
    run.write_json("metrics.json", {"play": {**count, "diverged": config.world.num_envs - len(episodes)}})


def play(worlds: TabletopVecEnv, act: Act, config: PlayConfig, reporter: Reporter) -> list[Episode]:
    """One episode of every world, in the order of the worlds. Raises `UserError` when none came to its end."""
    count = worlds.num_envs
    recorder = Recorder(worlds, act, episodes=count, seed=config.seed, describe=lambda row: {"world": str(row)})
    episodes = list(reporter.track(recorder, f"play {worlds.task.name}", total=count))
    if not episodes:
        raise UserError(f"the simulation diverged in all of the {count} worlds; seed={config.seed + 1} may do better")
    return sorted(episodes, key=lambda episode: int(episode.meta["world"]))


def verdicts(episodes: Sequence[Episode]) -> dict[str, str]:
    """What became of each episode, and how many succeeded; for the table."""
    told = {
        f"world {episode.meta['world']}": f"{episode.instruction}: {'success' if episode.success else 'no success'}"
        f" after {(len(episode) - 1) / episode.fps:.1f} s"
        for episode in episodes
    }
    return {**told, "success": f"{sum(episode.success is True for episode in episodes)} of {len(episodes)}"}


def expert(config: PlayConfig, worlds: TabletopVecEnv) -> Act:
    """The task's scripted expert, at full pace."""
    actor = ScriptedActor(worlds, seed=config.seed)

    def act(_: npt.NDArray[np.float32], begun: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        actor.begin(begun)
        return actor.act()

    return act


def random(config: PlayConfig, worlds: TabletopVecEnv) -> Act:
    """Actions drawn evenly from the whole action space."""
    rng = np.random.default_rng(config.seed)
    return lambda observation, _: rng.uniform(-1, 1, worlds.action_space.shape).astype(np.float32)


def stored(config: PlayConfig, worlds: TabletopVecEnv) -> Act:
    """The mean action of the policy in a folder. Raises `UserError` where there is none, or one of another task."""
    folder = Path(config.policy)
    if not folder.is_dir():
        raise UserError(f"{choices(config.policy, ACTS, 'policy')}, or a run folder of embodied-rm clone or refine")
    return calm(folder, worlds)


ACTS = {"expert": expert, "random": random}

COMMAND = Command(schema=PlayConfig, start=start)
