"""OpenGL and the ray tracer show every task alike: a reward model trained on one can be used on the other."""

import numpy as np
import pytest

from sim.bench.pictures import draw_twice, psnr
from sim.registry import task_names
from sim.robots import ROBOTS

ARMS = list(ROBOTS)


@pytest.mark.parametrize("task", task_names())
def test_every_view_of_every_task_is_the_same_picture(task):
    """Along the expert's way; the arms take turns over the tasks (`embodied-rm bench pictures` has all)."""
    robot = ARMS[task_names().index(task) % len(ARMS)]
    drawn = draw_twice(task, robot, worlds=3, every=20, size=64)
    assert drawn.gl.shape[:3] == (len(drawn.gl), 3, len(drawn.views)) and len(drawn.gl) >= 3
    assert not np.array_equal(drawn.gl[0], drawn.gl[1])
    assert min(drawn.psnr().values()) >= 35, drawn.psnr()


def test_psnr_is_what_the_textbook_says():
    black, grey = np.zeros((2, 4, 4, 3), np.uint8), np.full((2, 4, 4, 3), 51, np.uint8)
    assert psnr(black, grey) == pytest.approx(20 * np.log10(5))
    assert psnr(black, black) == np.inf
