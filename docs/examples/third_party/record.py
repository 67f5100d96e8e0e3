"""Episodes of scripted experts and of their failures, as a LeRobot dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import experts
import numpy as np
from worlds import Painter, World

import embodied_rm as erm
from embodied_rm.cli.console import ConsoleReporter
from embodied_rm.data.lerobot.write import DatasetWriter

HOLD_STEPS = 10  # control steps that are recorded after the first success
MIN_SUBTASK_STEPS = 2  # control steps of the shortest subtask, of which the model sees every second


@contextmanager
def open_vector_env(world: World, num_envs: int, *, ends_on_success: bool = False) -> Iterator[erm.CameraVectorEnv]:
    """Make a world a vector of environments with cameras, and close it at the end."""
    with closing(Painter(world)) as painter:
        env = erm.CameraVectorEnv(
            world.make_env,
            num_envs,
            instruction=world.instruction,
            get_images=painter,
            success_key=world.success_key,
            ends_on_success=ends_on_success,
        )
        with closing(env):
            yield env


def play_episode(env: erm.CameraVectorEnv, world: World, seed: int, failure: str | None) -> erm.Episode:
    """Play one episode with the expert; it lasts until shortly after the first success."""
    observation, infos = env.reset(seed=seed)
    expert = world.expert(env.envs[0], np.random.default_rng(seed), failure)
    frames, states, actions, phases = [], [], [], []
    steps_after_success, done = 0, False
    while not done:
        frames.append(env.render_views(np.array([0]))[0])
        states.append(observation[0])
        phases.append(expert.phase)
        actions.append(expert.act())
        observation, _, terminated, truncated, infos = env.step(actions[-1][None])
        steps_after_success += bool(steps_after_success or infos["success"][0])
        done = bool(terminated[0] or truncated[0]) or steps_after_success > HOLD_STEPS
    return erm.Episode(
        name=f"{failure or 'success'}_{seed}".replace(" ", "_"),
        views=dict(zip(env.view_names, np.stack(frames, axis=1), strict=True)),
        instruction=world.instruction,
        fps=10.0,
        subtasks=phase_subtasks(phases, len(phases) - steps_after_success + 1, world.phase_names),
        success=bool(infos["success"][0]),
        state=np.array(states),
        action=np.array(actions),
    )


def phase_subtasks(phases: list[int], end: int, names: tuple[str, ...]) -> tuple[erm.Subtask, ...]:
    """Return one subtask per phase of the expert; frames from `end` on, after the last subtask, are labeled as success.

    A phase that is shorter than the frames that the model sees takes the first frames of the next one.
    """
    indices = [min(phase, len(names) - 1) for phase in phases[:end]]
    starts = [0, *(frame for frame in range(1, len(indices)) if indices[frame] != indices[frame - 1])]
    edges = [0]
    for edge in (*starts[1:], len(indices)):
        edges.append(min(max(edge, edges[-1] + MIN_SUBTASK_STEPS), len(phases)))
    return tuple(
        erm.Subtask(name=names[indices[first]], start=start, end=end)
        for first, (start, end) in zip(starts, itertools.pairwise(edges), strict=True)
    )


def record_dataset(world: World, folder: Path, seed: int, successes: int, failures: int) -> None:
    """Record successes and failures; other episodes are not kept."""
    if folder.exists():
        return
    with open_vector_env(world, 1) as env, DatasetWriter(folder) as writer:
        for failure in (None, *experts.FAILURES):
            episodes = (play_episode(env, world, 1_000_000 * seed + number, failure) for number in itertools.count())
            kept = (episode for episode in episodes if episode.success == (failure is None))
            wanted = successes if failure is None else failures // len(experts.FAILURES)
            for episode in ConsoleReporter().track(itertools.islice(kept, wanted), f"{failure or 'success'}", wanted):
                writer.add(episode)
