"""The same worlds drawn by OpenGL and by the ray tracer: whoever draws, a reward model must see the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from gymnasium.vector import AutoresetMode

from sim.actors import ScriptedActor
from sim.render import make_renderer
from sim.render.base import Frames
from sim.vec_env import VIEWS, TabletopVecEnv


@dataclass(frozen=True, kw_only=True)
class DrawnTwice:
    """Episodes of N worlds, seen at T moments."""

    instructions: tuple[str, ...]
    views: tuple[str, ...]
    gl: Frames
    """[T, N, V, H, W, 3]."""
    traced: Frames
    """[T, N, V, H, W, 3]."""

    def psnr(self) -> dict[str, float]:
        """View -> peak signal-to-noise ratio over all its pictures, dB."""
        return {view: psnr(self.gl[:, :, v], self.traced[:, :, v]) for v, view in enumerate(self.views)}

    def lowest(self) -> float:
        """The lowest peak signal-to-noise ratio of any one moment and view, over the worlds, dB."""
        moments = zip(self.gl, self.traced, strict=True)
        return min(psnr(a[:, v], b[:, v]) for a, b in moments for v in range(len(self.views)))


def draw_twice(
    task: str, robot: str, *, worlds: int, every: int, size: int, views: Sequence[str] = VIEWS
) -> DrawnTwice:
    """The expert's episodes, seen at the start and then every `every` steps to the time limit."""
    env = TabletopVecEnv(
        task, worlds, robot=robot, views=views, image_size=size, renderer="gl", autoreset_mode=AutoresetMode.DISABLED
    )
    rows = np.arange(worlds)
    with closing(make_renderer("warp", env._backend, views, size)) as tracer:
        try:
            env.reset(seed=0)
            pairs = [(env.render_views(), tracer.render(rows)) for _ in _moments(env, every)]
        finally:
            env.close()
    gl, traced = (np.array(frames) for frames in zip(*pairs, strict=True))
    return DrawnTwice(instructions=env.instructions, views=tuple(views), gl=gl, traced=traced)


def _moments(env: TabletopVecEnv, every: int) -> Iterator[int]:
    """Play the expert and pause at the moments that are drawn."""
    actor = ScriptedActor(env, seed=0)
    actor.begin(np.arange(env.num_envs))
    for step in range(env.max_episode_steps + 1):
        if step % every == 0:
            yield step
        env.step(actor.act())


def psnr(ours: Frames, theirs: Frames) -> float:
    """Peak signal-to-noise ratio of 8-bit pictures, dB; infinite where they are the same."""
    error = np.square(ours.astype(np.float32) - theirs).mean(dtype=np.float64)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))
