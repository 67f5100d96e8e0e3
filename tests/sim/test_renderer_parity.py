"""OpenGL and the ray tracer show every task alike: a reward model trained on one can be used on the other."""

import numpy as np
import pytest
from embodied_sim.bench.renderer_parity import compare_renderers, psnr

from embodied_sim.registry import task_names
from embodied_sim.robots import ROBOTS

ARMS = list(ROBOTS)


@pytest.mark.parametrize("task", task_names())
def test_every_view_of_every_task_is_the_same_image(task):
    """Along the expert's way; the arms take turns over the tasks (`embodied-rm bench renderers` has all)."""
    robot = ARMS[task_names().index(task) % len(ARMS)]
    drawn = compare_renderers(task, robot, num_envs=3, frame_stride=20, image_size=64)
    assert drawn.gl_frames.shape[:3] == (len(drawn.gl_frames), 3, len(drawn.views)) and len(drawn.gl_frames) >= 3
    assert not np.array_equal(drawn.gl_frames[0], drawn.gl_frames[1])
    assert min(drawn.psnr().values()) >= 35, drawn.psnr()


def test_psnr_is_what_the_textbook_says():
    black, gray = np.zeros((2, 4, 4, 3), np.uint8), np.full((2, 4, 4, 3), 51, np.uint8)
    assert psnr(black, gray) == pytest.approx(20 * np.log10(5))
    assert psnr(black, black) == np.inf
