"""Round shapes as meshes: closed, facing outwards, as wide as the true ones; and drawn like them."""

from collections import Counter

import mujoco
import numpy as np
import pytest
from embodied_sim.bench.renderer_parity import psnr
from hypothesis import given
from hypothesis import strategies as st

from embodied_sim.backends import make_backend
from embodied_sim.render import make_renderer
from embodied_sim.render.flat_scene import is_primitive_only
from embodied_sim.render.tessellation import CAPSULE, CYLINDER, MIN_SLICES, SPHERE, make_mesh, slices_for_radii

shapes = st.tuples(
    st.sampled_from([SPHERE, CAPSULE, CYLINDER]),
    st.floats(0.005, 0.3),
    st.floats(0.01, 0.3),
    st.integers(MIN_SLICES, 40),
)


def measured(kind: int, radius: float, half: float, point: np.ndarray) -> np.ndarray:
    """Distance [P] of points from the axis (cylinder) or from the core (sphere, capsule), as a share of the radius."""
    height = np.zeros(len(point)) if kind == SPHERE else np.clip(point[:, 2], -half, half)
    core = np.column_stack([np.zeros((len(point), 2)), height])
    if kind == CYLINDER:
        core[:, 2] = point[:, 2]
    return np.linalg.norm(point - core, axis=1) / radius


@given(shapes)
def test_the_surface_is_closed_and_faces_outwards(shape):
    kind, radius, half, slices = shape
    vertices, normals, faces = make_mesh(kind, np.array([radius, half, 0]), slices)
    place = np.unique(vertices.round(9), axis=0, return_inverse=True)[1].reshape(-1)[faces]
    edges = Counter((a, b) for face in place for a, b in zip(face, np.roll(face, -1), strict=True))
    assert all(count == 1 and edges[b, a] == 1 for (a, b), count in edges.items())
    corners = vertices[faces]
    outwards = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert np.einsum("fi,fi->f", corners[:, 0], outwards).sum() / 6 > 0, "the volume is negative"
    assert (np.einsum("fi,fvi->fv", outwards, normals[faces]) > 0).all()
    assert np.allclose(np.linalg.norm(normals, axis=1), 1)


@given(shapes)
def test_it_is_as_wide_as_the_true_shape(shape):
    """Corners stand out by no more than the middles of the outline's edges stand in."""
    kind, radius, half, slices = shape
    vertices, *_ = make_mesh(kind, np.array([radius, half, 0]), slices)
    out = measured(kind, radius, half, vertices).max() - 1
    assert 0 < out < (np.pi / slices) ** 2
    assert np.isclose((1 + out) * np.cos(np.pi / slices), 1 - out)


def test_thin_shapes_get_fewer_facets_but_leave_their_circles_as_little():
    counts = slices_for_radii(np.array([0.08, 0.02, 0.0001]), 24)
    assert counts.tolist() == [24, 12, MIN_SLICES]
    assert slices_for_radii(np.array([]), 24).tolist() == []


ROUND_THINGS = """<mujoco><visual><headlight ambient=".3 .3 .3" diffuse=".3 .3 .3" specular="0 0 0"/></visual>{assets}
<worldbody><light type="directional" dir=".2 .3 -1" diffuse=".4 .4 .4" specular="0 0 0" castshadow="false"/>
<camera name="front" pos="1 0 .5" xyaxes="0 1 0 -.45 0 .9"/><geom type="plane" size="1 1 1" rgba=".4 .4 .4 1"/>
<body pos="0 -.3 .1" euler="20 30 0"><freejoint/><geom type="cylinder" size=".15 .02" rgba=".8 .2 .1 1"/></body>
<body pos="0 0 .1" euler="70 10 0"><freejoint/><geom type="capsule" size=".06 .1" rgba=".1 .6 .2 1"/></body>
<body pos="0 .3 .1"><freejoint/><geom type="sphere" size=".1" {look}/></body></worldbody></mujoco>"""
PLAIN = ROUND_THINGS.format(assets="", look='rgba=".2 .3 .9 1"')
WITH_MATERIAL = ROUND_THINGS.format(
    assets='<asset><material name="m" rgba=".2 .3 .9 1" specular="0"/></asset>', look='material="m"'
)


@pytest.mark.parametrize(("xml", "plain"), [(PLAIN, True), (WITH_MATERIAL, False)])
def test_round_things_look_as_a_ray_tracer_sees_them(xml, plain):
    """Wide cylinders too, whose mesh lies on its side; and things that cannot be made flat."""
    model = mujoco.MjModel.from_xml_string(xml)
    assert is_primitive_only(model) == plain
    backend = make_backend("batch", model, 1, 1)
    drawn, traced = (make_renderer(name, backend, ["front"], 128) for name in ("gl", "warp"))
    rows = np.arange(1)
    assert psnr(drawn.render(rows), traced.render(rows)) >= (35 if plain else 30)
    drawn.close()
    traced.close()
