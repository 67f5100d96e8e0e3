"""Round shapes as meshes with no more facets than a small picture can show.

MuJoCo's OpenGL draws every sphere, capsule and cylinder with one count of facets, the sides of tubes in as many rings
as the caps: on a software rasteriser, vertices are what a small picture costs.
"""

from __future__ import annotations

from itertools import pairwise

import mujoco
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SPHERE, CAPSULE, CYLINDER = (
    int(kind) for kind in (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_CYLINDER)
)
ROUND = (SPHERE, CAPSULE, CYLINDER)
FEWEST = 8
"""Facets around the thinnest shape."""


def slices_of(radius: FloatArray, most: int) -> IntArray:
    """Facets around shapes of these radii: `most` around the thickest, for the others so many that all polygons leave
    their circles equally far."""
    share = np.sqrt(radius / max(float(radius.max(initial=0)), 1e-9))
    return np.maximum(np.rint(most * share), FEWEST).astype(np.int64)


def straddling(slices: int) -> float:
    """By what a polygon inside its circle is widened, to leave it as far outwards as inwards.

    One that lies wholly inside makes every outline too thin, which costs 2 dB of PSNR against a ray tracer.
    """
    return float(2 / (1 + np.cos(np.pi / slices)))


def mesh_of(kind: int, size: FloatArray, slices: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Vertices [P, 3], their normals [P, 3] and triangles [F, 3] of a sphere, capsule or cylinder along z.

    `size` as in MuJoCo: radius, half length (without the caps).
    """
    radius, half = size[0] * straddling(slices), 0.0 if kind == SPHERE else float(size[1])
    profile = _flat_ends(radius, half) if kind == CYLINDER else _round_ends(radius, half, max(slices // 4, 2))
    return _revolved(*profile, slices)


def _round_ends(radius: float, half: float, rings: int) -> tuple[FloatArray, FloatArray]:
    """The outline of a capsule from pole to pole as distance from the axis and height [R, 2], and its normals."""
    angle = np.linspace(0, np.pi / 2, rings + 1)
    normal = np.column_stack([np.sin(angle), -np.cos(angle)])
    lower = radius * normal - [0, half]
    upward = normal[::-1] * [1, -1]
    upper = radius * upward + [0, half]
    if half == 0:
        upper, upward = upper[1:], upward[1:]
    return np.concatenate([lower, upper]), np.concatenate([normal, upward])


def _flat_ends(radius: float, half: float) -> tuple[FloatArray, FloatArray]:
    """Likewise of a cylinder; its edges are there twice, with the normal of either side."""
    outline = np.array([[0, -half], [radius, -half], [radius, -half], [radius, half], [radius, half], [0, half]])
    normal = np.array([[0, -1], [0, -1], [1, 0], [1, 0], [0, 1], [0, 1]], np.float64)
    return outline, normal


def _revolved(outline: FloatArray, normal: FloatArray, slices: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """The surface that an outline [R, 2] (distance from the axis, height) makes around the z axis.

    Rings nearer to the axis than the widest get fewer vertices, so that all leave their circles equally far.
    """
    share = np.sqrt(outline[:, 0] / outline[:, 0].max())
    counts = np.maximum(np.rint(slices * share), np.where(share > 0, 3, 1)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    turns = [2 * np.pi * np.arange(count) / count for count in counts]

    def around(pairs: FloatArray) -> FloatArray:
        return np.concatenate([
            np.column_stack([out * np.cos(turn), out * np.sin(turn), np.full(len(turn), up)])
            for (out, up), turn in zip(pairs, turns, strict=True)
        ])  # fmt: skip

    faces = [
        _strip(starts[ring], counts[ring], starts[ring + 1], counts[ring + 1])
        for ring, (below, above) in enumerate(pairwise(outline))
        if not np.array_equal(below, above)
    ]
    return around(outline), around(normal), np.concatenate(faces)


def _strip(low: int, below: int, high: int, above: int) -> IntArray:
    """Triangles [F, 3] between a ring of `below` vertices, numbered from `low`, and one of `above`, from `high`: around
    both at once, on where the next vertex comes first."""
    faces, i, j = [], 0, 0
    while i < below * (below > 1) or j < above * (above > 1):
        if below > 1 and (above == 1 or (i + 1) * above <= (j + 1) * below):
            faces.append((low + i % below, low + (i + 1) % below, high + j % above))
            i += 1
        else:
            faces.append((low + i % below, high + (j + 1) % above, high + j % above))
            j += 1
    return np.array(faces)
