"""Speed comparison, each measurement in its own process, so that OpenGL contexts and memory are not shared."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import median
from typing import Any, TypeVar

from embodied_sim.bench.rollouts import RolloutConfig, RolloutSpeed, time_gymnasium_async, time_tabletop_env
from embodied_sim.render.gl_context import GL_PACKAGES, describe_missing_gl, find_gl_platform
from embodied_sim.sim_errors import SimError

T = TypeVar("T")
NUM_ROUNDS = 3  # repetitions of each measurement, interleaved; the median is reported


def measure_speeds(rollout: RolloutConfig, steps: int) -> Iterator[tuple[str, RolloutSpeed]]:
    """Yield the speeds of this package and of Gymnasium's processes, interleaved, `NUM_ROUNDS` times.

    `steps` is for this package; the others take fewer steps, because they are slower.
    """
    for _ in range(NUM_ROUNDS):
        yield "ours", run_in_subprocess(time_tabletop_env, rollout, steps)
        yield "async_fast", run_in_subprocess(time_gymnasium_async, rollout, max(steps // 3, 4), fast_render=True)
        slow_speed = run_in_subprocess(time_gymnasium_async, rollout, max(steps // 20, 3), fast_render=False)
        yield "async_as_it_comes", slow_speed


def measure_scaling(
    rollout: RolloutConfig, counts: Sequence[int], env_steps: int
) -> Iterator[tuple[int, RolloutSpeed, RolloutSpeed]]:
    """Yield number of environments, speed with images and speed without; about `env_steps` environment steps each."""
    for count in counts:
        scaled, steps = replace(rollout, num_envs=count), max(env_steps // count, 5)
        speed = run_in_subprocess(time_tabletop_env, scaled, steps)
        yield count, speed, run_in_subprocess(time_tabletop_env, scaled, steps, render_images=False)


def speed_ratios(speeds: Sequence[tuple[str, RolloutSpeed]]) -> dict[str, float]:
    """Return the median environment steps per second of each contender, and the speedups of this package."""
    rates = {name: median(speed.env_steps_per_s for label, speed in speeds if label == name) for name, _ in speeds}
    speedups = {f"ours_to_{name}": rates["ours"] / rate for name, rate in rates.items() if name != "ours"}
    return {**{f"{name}_env_steps_per_s": rate for name, rate in rates.items()}, **speedups}


def run_in_subprocess(measure: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return `measure(*args, **kwargs)` of a fresh process. Raises `SimError` if it would find no OpenGL."""
    platform = find_gl_platform()
    if platform is None:
        problem = describe_missing_gl()
        raise SimError(f"the comparison needs OpenGL, {problem}: install the Debian packages {GL_PACKAGES}")
    os.environ["MUJOCO_GL"] = platform
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *args, **kwargs).result()
