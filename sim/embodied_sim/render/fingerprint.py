"""Fingerprint of a renderer: the colors that it gives to a small scene.

Images depend on MuJoCo, on the graphics driver and on the kind of renderer. An upgrade of one of them can change all of
them without an error.
"""

from __future__ import annotations

from contextlib import closing
from functools import cache

import mujoco
import numpy as np

from embodied_sim.backends import make_backend
from embodied_sim.render import make_renderer

IMAGE_SIZE_PX, CELLS = 32, 4
"""Sides of the image, and of the grid of which each cell is averaged: single pixels differ between drivers."""
SCENE = """
<mujoco>
  <visual><headlight ambient=".3 .3 .3" diffuse=".3 .3 .3" specular="0 0 0"/></visual>
  <worldbody>
    <light directional="true" dir=".3 .5 -1" diffuse=".4 .4 .4" specular="0 0 0" castshadow="false"/>
    <camera name="fingerprint" pos="0 -1 .8" xyaxes="1 0 0 0 .62 .78" fovy="38"/>
    <geom type="box" size=".6 .6 .02" pos="0 0 -.02" rgba=".5 .5 .4 1"/>
    <geom type="box" size=".1 .08 .1" pos="-.3 .1 .1" euler="0 0 30" rgba=".9 .1 .1 1"/>
    <geom type="sphere" size=".12" pos=".3 .1 .12" rgba=".1 .2 .9 1"/>
    <geom type="cylinder" size=".08 .15" pos="0 .3 .15" rgba=".1 .8 .2 1"/>
    <geom type="capsule" size=".05 .15" pos="0 -.1 .05" euler="0 90 0" rgba=".9 .8 .1 1"/>
  </worldbody>
</mujoco>
"""


@cache
def renderer_fingerprint(renderer: str = "auto", backend: str = "batch", device: str = "cpu") -> str:
    """Return the mean colors of the cells of the image of `SCENE`, row by row.

    Args:
        renderer: Name of the renderer, as for `make_renderer`.
        backend: Physics backend whose worlds it draws.
        device: Device of the backend.

    Returns:
        Two hexadecimal digits per cell and color.

    Raises:
        SimError: The renderer or backend is unknown, or cannot work here.
    """
    engine = make_backend(backend, mujoco.MjModel.from_xml_string(SCENE), 1, threads=1, device=device)
    with closing(engine), closing(make_renderer(renderer, engine, ["fingerprint"], IMAGE_SIZE_PX, threads=1)) as drawer:
        image = drawer.render(np.zeros(1, np.int64))[0, 0]
    cell_px = IMAGE_SIZE_PX // CELLS
    cells = image.reshape(CELLS, cell_px, CELLS, cell_px, 3).mean((1, 3))
    return cells.round().astype("uint8").tobytes().hex()
