"""`embodied-rm play`: render the expert, a random policy or a stored one, or replay a divergence of the simulator."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from embodied_rm.atomic_file import write_atomic
from embodied_rm.command import Command
from embodied_rm.data.record import EpisodeRecorder, PolicyFn
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import UserError, unknown_name_message
from embodied_rm.programs.predictive_sampling import PlannerConfig
from embodied_rm.programs.program import read_program
from embodied_rm.report.episode_images import ContactSheetRow, draw_contact_sheet, make_grid
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_rm.tabletop.person_policy import PERSON, open_person_policy
from embodied_rm.tabletop.policies import deterministic_policy, scripted_policy
from embodied_rm.tabletop.program_planner import ProgramPlanner
from embodied_rm.tabletop.program_states import task_variables
from embodied_rm.types import Episode
from embodied_sim.divergence import Divergence, read_divergence, replay_divergence
from embodied_sim.registry import find_task, make_task, task_names
from embodied_sim.robots import Robot, find_robot
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.task import Task
from embodied_sim.vec_env import VIEW_NAMES, TabletopVecEnv

PLANNER = "planner"
"""Policy that plans by a reward program."""
VIDEO_FILE, IMAGE_FILE = "play.mp4", "before.png"  # names inside the run folder
REPLAY_FPS = 4  # physics time steps (5 ms) of a divergence per second of video


@dataclass(frozen=True, kw_only=True)
class PlayConfig:
    """Config of `play`: a policy and a task, or a divergence to replay."""

    task: str | None = None
    replay: Path | None = None
    policy: str = "expert"
    program: Path | None = None
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    port: int = 0
    seed: int = 0
    env: EnvConfig = field(default_factory=lambda: EnvConfig(num_envs=4, views=VIEW_NAMES, image_size=192))

    def __post_init__(self) -> None:
        if self.env.image_size % 2:
            raise UserError(f"env.image_size must be even, for the video, got {self.env.image_size}")
        if (self.policy == PLANNER) != (self.program is not None):
            raise UserError(f"policy={PLANNER} and program= belong together: a planner acts by a reward program")
        if self.port and self.policy != PERSON:
            raise UserError(f"port={self.port} is that of the page of policy={PERSON}: leave it out")


def main(config: PlayConfig, run: RunFolder, reporter: Reporter) -> None:
    """Play a task or replay a divergence. Raises `UserError` if neither is set."""
    if config.replay is not None:
        play_divergence(config.replay, config, run, reporter)
    elif config.task is not None:
        play_task(config.task, config, run, reporter)
    else:
        raise UserError("play needs task=..., a task, or replay=..., a file in env.divergence_dump_dir; see --help")


def play_divergence(path: Path, config: PlayConfig, run: RunFolder, reporter: Reporter) -> None:
    """Replay a divergence; write the images up to it and the reason that the simulator gives."""
    divergence, env_config = read_divergence(path), config.env
    task, robot = divergence_task(path, divergence, config.task), divergence_robot(path, divergence, env_config)
    options = {name: getattr(env_config, name) for name in ("views", "image_size", "backend", "device", "renderer")}
    replayed = replay_divergence(divergence, task, robot, **options)
    first_views = dict(zip(env_config.views, replayed.images[0], strict=True))
    row = ContactSheetRow(caption=f"{divergence.task}: {divergence.reason}", views=first_views)
    write_atomic(run.file_path(IMAGE_FILE), draw_contact_sheet([row]))
    # The first image is repeated for a second: it is the only one if the environment diverges at once.
    clip = np.concatenate([replayed.images[:1].repeat(REPLAY_FPS, axis=0), replayed.images[1:]])
    write_video(run.file_path(VIDEO_FILE), make_grid([list(clip.swapaxes(0, 1))]), REPLAY_FPS)
    summary = {"task": divergence.task, "robot": divergence.robot, "then": divergence.reason}
    length = {"time_steps": len(replayed.images) - 1}
    reporter.table(f"divergence {path}", {**summary, "now": replayed.reason or "it did not diverge again", **length})
    run.write_json("metrics.json", {"play": {"replay": str(path), **summary, "now": replayed.reason, **length}})


def divergence_task(path: Path, divergence: Divergence, task_name: str | None) -> Task:
    """Return the task of a divergence. Raises `UserError` if a custom task is not named, or another task is.

    A divergence file is data: a Python task file is run only if `task_name`, from the command line, names it.
    """
    if task_name is None:
        if divergence.task not in task_names():
            raise UserError(
                f"{path} is a divergence of {divergence.task!r}, which is no task of this package; "
                "for a custom task, name its file: task=my_task.py"
            )
        return find_task(divergence.task)
    task = make_task(task_name)
    if task.name != divergence.task:
        raise UserError(f"{path} is a divergence of the task {divergence.task}, got task={task_name}: leave task out")
    return task


def divergence_robot(path: Path, divergence: Divergence, env_config: EnvConfig) -> Robot:
    """Return the robot of a divergence. Raises `UserError` if a custom robot is not named.

    A custom robot is read only from the file that `env.robot` names.
    """
    is_custom = divergence.robot.endswith(".xml")
    if is_custom and not env_config.robot.endswith(".xml"):
        raise UserError(
            f"{path} is a divergence of a custom robot, {divergence.robot}: name its file, env.robot=my_arm.xml"
        )
    name = env_config.robot if is_custom else divergence.robot
    return find_robot(name, env_config.tool_site, env_config.gripper_actuator)


def play_task(task: str, config: PlayConfig, run: RunFolder, reporter: Reporter) -> None:
    """Play one episode per environment; write the video and the simulator's evaluation."""
    if config.policy == PERSON:
        config = replace(config, env=replace(config.env, num_envs=1))
    with closing(make_envs(task, config.env, ends_on_success=True)) as envs, ExitStack() as stack:
        act = open_policy(config, envs, stack, reporter)
        episodes = record_episodes(envs, act, config, reporter)
    grid = make_grid([list(episode.views.values()) for episode in episodes])
    write_video(run.file_path(VIDEO_FILE), grid, episodes[0].fps)
    reporter.table(f"played {task}", {"policy": config.policy, **episode_outcomes(episodes)})
    counts = {"episodes": config.env.num_envs, "successes": sum(episode.success is True for episode in episodes)}
    run.write_json("metrics.json", {"play": {**counts, "diverged": config.env.num_envs - len(episodes)}})


def record_episodes(envs: TabletopVecEnv, act: PolicyFn, config: PlayConfig, reporter: Reporter) -> list[Episode]:
    """Record one episode per environment, in their order. Raises `UserError` if all of them diverged."""
    count = envs.num_envs

    def describe(row: int) -> dict[str, str]:
        return {"env": str(row)}

    recorder = EpisodeRecorder(envs, act, num_episodes=count, seed=config.seed, metadata_fn=describe)
    episodes = list(reporter.track(recorder, f"play {envs.task.name}", total=count))
    if not episodes:
        raise UserError(f"the simulation diverged in all {count} environments; try seed={config.seed + 1}")
    return sorted(episodes, key=lambda episode: int(episode.metadata["env"]))


def episode_outcomes(episodes: Sequence[Episode]) -> dict[str, str]:
    """Return the table of outcomes: one row per episode, and the number of successes."""
    outcomes = {}
    for episode in episodes:
        outcome = "success" if episode.success else "no success"
        duration_s = (len(episode) - 1) / episode.fps
        outcomes[f"env {episode.metadata['env']}"] = f"{episode.instruction}: {outcome} after {duration_s:.1f} s"
    return {**outcomes, "success": f"{sum(episode.success is True for episode in episodes)} of {len(episodes)}"}


def expert_policy(config: PlayConfig, envs: TabletopVecEnv) -> PolicyFn:
    """Return the task's scripted expert at full speed."""
    return scripted_policy(ScriptedPolicy(envs, seed=config.seed))


def random_policy(config: PlayConfig, envs: TabletopVecEnv) -> PolicyFn:
    """Return a policy with uniformly random actions."""
    rng = np.random.default_rng(config.seed)
    return lambda observation, _: rng.uniform(-1, 1, envs.action_space.shape).astype(np.float32)


def open_policy(config: PlayConfig, envs: TabletopVecEnv, stack: ExitStack, reporter: Reporter) -> PolicyFn:
    """Return the policy; the stack closes what it needs."""
    if config.policy == PERSON:
        return stack.enter_context(open_person_policy(envs, config.port, reporter))
    if config.policy == PLANNER:
        return open_planner(config, envs, stack)
    return POLICIES.get(config.policy, stored_policy)(config, envs)


def open_planner(config: PlayConfig, envs: TabletopVecEnv, stack: ExitStack) -> PolicyFn:
    """Return a planner, which the stack closes. Raises `UserError` if its program is not one of the task."""
    assert config.task is not None and config.program is not None
    program = read_program(config.program, task_variables(envs.task))
    planner = ProgramPlanner(envs, config.task, config.env, program, config.planner, config.seed)
    return stack.enter_context(closing(planner)).act


def stored_policy(config: PlayConfig, envs: TabletopVecEnv) -> PolicyFn:
    """Return the mean action of a stored policy. Raises `UserError` if it does not exist or is for another task."""
    folder = Path(config.policy)
    if not folder.is_dir():
        unknown = unknown_name_message(config.policy, (*POLICIES, PLANNER, PERSON), "policy")
        raise UserError(f"{unknown}, or a run folder of embodied-rm clone, offline or refine")
    return deterministic_policy(folder, envs)


POLICIES = {"expert": expert_policy, "random": random_policy}

COMMAND = Command(schema=PlayConfig, main=main)
