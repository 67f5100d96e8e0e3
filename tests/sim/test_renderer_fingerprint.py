"""Fingerprint of the renderer: equal colors for equal images, other ones for a renderer that draws otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from embodied_rm.data.renderers import MAX_DIFFERENCE_LEVELS, parse_fingerprint, renderer_difference
from embodied_sim.render import fingerprint
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

draw = fingerprint.renderer_fingerprint


@pytest.fixture(autouse=True)
def _forget_drawings() -> None:
    draw.cache_clear()


def test_the_fingerprint_shows_the_scene() -> None:
    cells = parse_fingerprint(draw("gl")).reshape(fingerprint.CELLS, fingerprint.CELLS, 3)
    assert cells[:, 0].sum(0).argmax() == 0, "the red box is on the left"
    assert cells[0, 3].argmax() == 2 and cells[1, 3].argmax() == 2, "the blue sphere is on the right"
    table = cells[-1, -1]
    assert table[0] == table[1] > table[2] > 50


def test_both_renderers_have_equal_fingerprints_up_to_the_limit() -> None:
    assert renderer_difference(draw("gl"), draw("warp")) <= MAX_DIFFERENCE_LEVELS


DEVIATIONS: dict[str, Callable[[str], str]] = {
    "brighter lights": lambda scene: scene.replace('diffuse=".4 .4 .4"', 'diffuse=".5 .5 .5"'),
    "a headlight that is not drawn": lambda scene: scene.replace("<headlight", '<headlight active="0"'),
    "no capsules": lambda scene: scene.replace('size=".05 .15"', 'size=".001 .001"'),
    "another field of view": lambda scene: scene.replace('fovy="38"', 'fovy="45"'),
    "red and blue exchanged": lambda scene: scene.replace(".9 .1 .1 1", ".1 .1 .9 1"),
}


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_another_drawing_has_another_fingerprint(deviation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = draw("gl")
    draw.cache_clear()
    monkeypatch.setattr(fingerprint, "SCENE", DEVIATIONS[deviation](fingerprint.SCENE))
    assert renderer_difference(usual, draw("gl")) > MAX_DIFFERENCE_LEVELS


def test_environments_have_the_fingerprint_of_their_renderer() -> None:
    envs = TabletopVecEnv("lift_cube", 2)
    assert envs.renderer_fingerprint == draw("auto") == draw("gl")
    assert np.array_equal(parse_fingerprint(draw("gl")), parse_fingerprint(draw("gl")))
    envs.close()


def test_an_unknown_renderer_is_named() -> None:
    with pytest.raises(SimError, match="unknown renderer 'vulkan'"):
        draw("vulkan")
