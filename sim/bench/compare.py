"""Measurements side by side, each in a process of its own: no OpenGL context, no memory of one reaches another."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import median
from typing import Any, TypeVar

from sim.bench.rollouts import Rollout, Speed, gymnasium_async, ours
from sim.errors import SimError
from sim.render.opengl import PACKAGES, why_none, working_platform

T = TypeVar("T")
ROUNDS = 3
"""Each measurement is made so often, in turn; the median counts."""


def contenders(rollout: Rollout, steps: int) -> Iterator[tuple[str, Speed]]:
    """The speeds of this package and of Gymnasium's processes, one after the other, `ROUNDS` times over.

    `steps` are ours; the others take fewer, in proportion to how slow they are known to be.
    """
    for _ in range(ROUNDS):
        yield "ours", alone(ours, rollout, steps)
        yield "async_lean", alone(gymnasium_async, rollout, max(steps // 3, 4), lean=True)
        yield "async_as_it_comes", alone(gymnasium_async, rollout, max(steps // 20, 3), lean=False)


def scaling(rollout: Rollout, counts: Sequence[int], env_steps: int) -> Iterator[tuple[int, Speed, Speed]]:
    """Number of environments, its speed with pictures, and without; about `env_steps` environment steps each."""
    for count in counts:
        many, steps = replace(rollout, num_envs=count), max(env_steps // count, 5)
        yield count, alone(ours, many, steps), alone(ours, many, steps, pictures=False)


def ratios(speeds: Sequence[tuple[str, Speed]]) -> dict[str, float]:
    """Median environment steps per second of each contender, and how many times faster ours is."""
    rates = {name: median(s.env_steps_per_s for n, s in speeds if n == name) for name, _ in speeds}
    faster = {f"ours_to_{name}": rates["ours"] / rate for name, rate in rates.items() if name != "ours"}
    return {**{f"{name}_env_steps_per_s": rate for name, rate in rates.items()}, **faster}


def alone(measure: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The result of `measure(*args, **kwargs)` in a fresh process, where `mujoco.Renderer` finds its OpenGL.

    Raises `SimError` where there is none.
    """
    platform = working_platform()
    if platform is None:
        raise SimError(f"the comparison needs OpenGL, {why_none()}: install the Debian packages {PACKAGES}")
    os.environ["MUJOCO_GL"] = platform
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *args, **kwargs).result()
