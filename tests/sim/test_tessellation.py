"""Meshes of round shapes are closed, face outward, have the true width, and look the same."""

from collections import Counter

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_sim.backends import make_backend
from embodied_sim.bench.renderer_parity import psnr
from embodied_sim.render import make_renderer
from embodied_sim.render.flat_scene import is_primitive_only
from embodied_sim.render.tessellation import CAPSULE, CYLINDER, MIN_SLICES, SPHERE, make_mesh, slices_for_radii

shapes = st.tuples(
    st.sampled_from([SPHERE, CAPSULE, CYLINDER]),
    st.floats(0.005, 0.3),
    st.floats(0.01, 0.3),
    st.integers(MIN_SLICES, 40),
)


def relative_radius(kind: int, radius: float, half: float, point: np.ndarray) -> np.ndarray:
    """Return distances [P] from the axis (cylinder) or the core (sphere, capsule), relative to the radius."""
    height = np.zeros(len(point)) if kind == SPHERE else np.clip(point[:, 2], -half, half)
    core = np.column_stack([np.zeros((len(point), 2)), height])
    if kind == CYLINDER:
        core[:, 2] = point[:, 2]
    return np.linalg.norm(point - core, axis=1) / radius


@given(shapes)
def test_surface_is_closed_and_faces_outward(shape):
    kind, radius, half, slices = shape
    vertices, normals, faces = make_mesh(kind, np.array([radius, half, 0]), slices)
    vertex_ids = np.unique(vertices.round(9), axis=0, return_inverse=True)[1].reshape(-1)[faces]
    edges = Counter((a, b) for face in vertex_ids for a, b in zip(face, np.roll(face, -1), strict=True))
    assert all(count == 1 and edges[b, a] == 1 for (a, b), count in edges.items())
    corners = vertices[faces]
    face_normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert np.einsum("fi,fi->f", corners[:, 0], face_normals).sum() / 6 > 0, "the volume is negative"
    assert (np.einsum("fi,fvi->fv", face_normals, normals[faces]) > 0).all()
    assert np.allclose(np.linalg.norm(normals, axis=1), 1)


@given(shapes)
def test_mesh_is_as_wide_as_the_shape(shape):
    """Corners extend outward as far as the middles of edges lie inward."""
    kind, radius, half, slices = shape
    vertices, *_ = make_mesh(kind, np.array([radius, half, 0]), slices)
    excess = relative_radius(kind, radius, half, vertices).max() - 1
    assert 0 < excess < (np.pi / slices) ** 2
    assert np.isclose((1 + excess) * np.cos(np.pi / slices), 1 - excess)


def test_thin_shapes_have_fewer_facets():
    counts = slices_for_radii(np.array([0.08, 0.02, 0.0001]), 24)
    assert counts.tolist() == [24, 12, MIN_SLICES]
    assert slices_for_radii(np.array([]), 24).tolist() == []


ROUND_SHAPES = """<mujoco><visual><headlight ambient=".3 .3 .3" diffuse=".3 .3 .3" specular="0 0 0"/></visual>{assets}
<worldbody><light type="directional" dir=".2 .3 -1" diffuse=".4 .4 .4" specular="0 0 0" castshadow="false"/>
<camera name="front" pos="1 0 .5" xyaxes="0 1 0 -.45 0 .9"/><geom type="plane" size="1 1 1" rgba=".4 .4 .4 1"/>
<body pos="0 -.3 .1" euler="20 30 0"><freejoint/><geom type="cylinder" size=".15 .02" rgba=".8 .2 .1 1"/></body>
<body pos="0 0 .1" euler="70 10 0"><freejoint/><geom type="capsule" size=".06 .1" rgba=".1 .6 .2 1"/></body>
<body pos="0 .3 .1"><freejoint/><geom type="sphere" size=".1" {look}/></body></worldbody></mujoco>"""
PRIMITIVES_ONLY = ROUND_SHAPES.format(assets="", look='rgba=".2 .3 .9 1"')
WITH_MATERIAL = ROUND_SHAPES.format(
    assets='<asset><material name="m" rgba=".2 .3 .9 1" specular="0"/></asset>', look='material="m"'
)


@pytest.mark.parametrize(("xml", "primitive_only"), [(PRIMITIVES_ONLY, True), (WITH_MATERIAL, False)])
def test_round_shapes_look_as_in_the_ray_tracer(xml, primitive_only):
    """Includes wide cylinders, whose mesh is compiled on its side, and a model that is not flattened."""
    model = mujoco.MjModel.from_xml_string(xml)
    assert is_primitive_only(model) == primitive_only
    backend = make_backend("batch", model, 1, 1)
    drawn, traced = (make_renderer(name, backend, ["front"], 128) for name in ("gl", "warp"))
    rows = np.arange(1)
    assert psnr(drawn.render(rows), traced.render(rows)) >= (35 if primitive_only else 30)
    drawn.close()
    traced.close()
