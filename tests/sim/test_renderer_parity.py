"""OpenGL and the ray tracer render every task alike, so that reward models work with both."""

import numpy as np
import pytest

from embodied_sim.bench.renderer_parity import compare_renderers, psnr
from embodied_sim.registry import task_names
from embodied_sim.robots import ROBOTS

ARMS = list(ROBOTS)


@pytest.mark.parametrize("task", task_names())
def test_renderers_agree_in_every_view_of_every_task(task):
    """One arm per task, along the expert's episode; `embodied-rm bench renderers` compares all arms."""
    robot = ARMS[task_names().index(task) % len(ARMS)]
    comparison = compare_renderers(task, robot, num_envs=3, frame_stride=20, image_size=64)
    assert (
        comparison.gl_frames.shape[:3] == (len(comparison.gl_frames), 3, len(comparison.views))
        and len(comparison.gl_frames) >= 3
    )
    assert not np.array_equal(comparison.gl_frames[0], comparison.gl_frames[1])
    assert min(comparison.psnr().values()) >= 35, comparison.psnr()


def test_psnr_of_known_images():
    black, gray = np.zeros((2, 4, 4, 3), np.uint8), np.full((2, 4, 4, 3), 51, np.uint8)
    assert psnr(black, gray) == pytest.approx(20 * np.log10(5))
    assert psnr(black, black) == np.inf
