"""Comparison of OpenGL and the ray tracer: a reward model must get the same images from both."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from embodied_sim.render import make_renderer
from embodied_sim.render.renderer import Frames
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.vec_env import VIEW_NAMES, TabletopVecEnv


@dataclass(frozen=True, kw_only=True)
class RendererComparison:
    """Images of N episodes at T timesteps by both renderers."""

    instructions: tuple[str, ...]
    views: tuple[str, ...]
    gl_frames: Frames  # [T, N, V, H, W, 3]
    traced_frames: Frames  # [T, N, V, H, W, 3]

    def psnr(self) -> dict[str, float]:
        """Return view -> peak signal-to-noise ratio over all its images, dB."""
        return {view: psnr(self.gl_frames[:, :, v], self.traced_frames[:, :, v]) for v, view in enumerate(self.views)}

    def min_psnr(self) -> float:
        """Return the lowest peak signal-to-noise ratio of any timestep and view, over the environments, dB."""
        frame_pairs = zip(self.gl_frames, self.traced_frames, strict=True)
        return min(psnr(a[:, v], b[:, v]) for a, b in frame_pairs for v in range(len(self.views)))


def compare_renderers(
    task: str, robot: str, *, num_envs: int, frame_stride: int, image_size: int, views: Sequence[str] = VIEW_NAMES
) -> RendererComparison:
    """Render the expert's episodes at every `frame_stride`-th step, from the start to the time limit."""
    options: dict[str, Any] = {"robot": robot, "views": views, "image_size": image_size, "renderer": "gl"}
    env = TabletopVecEnv(task, num_envs, autoreset_mode=AutoresetMode.DISABLED, **options)
    rows = np.arange(num_envs)
    with closing(make_renderer("warp", env._backend, views, image_size)) as tracer:
        try:
            env.reset(seed=0)
            pairs = [(env.render_views(), tracer.render(rows)) for _ in _play_expert(env, frame_stride)]
        finally:
            env.close()
    gl_frames, traced_frames = (np.array(frames) for frames in zip(*pairs, strict=True))
    return RendererComparison(
        instructions=env.instructions, views=tuple(views), gl_frames=gl_frames, traced_frames=traced_frames
    )


def _play_expert(env: TabletopVecEnv, frame_stride: int) -> Iterator[int]:
    """Play the expert; yield at the steps that are rendered."""
    policy = ScriptedPolicy(env, seed=0)
    policy.reset(np.arange(env.num_envs))
    for step in range(env.max_episode_steps + 1):
        if step % frame_stride == 0:
            yield step
        env.step(policy.act())


def psnr(first: Frames, second: Frames) -> float:
    """Return the peak signal-to-noise ratio of 8-bit images, dB; infinite for equal images."""
    error = np.square(first.astype(np.float32) - second).mean(dtype=np.float64)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))
