"""The scene for the eye alone: every geom, camera and light in the world's own frame, round shapes as light meshes."""

from __future__ import annotations

import mujoco
import numpy as np

from sim.render.facets import ROUND, mesh_of, slices_of

_LOOKS = (
    "geom_rgba", "geom_group", "cam_fovy", "cam_resolution", "cam_sensorsize", "cam_intrinsic",
    "light_type", "light_active", "light_castshadow", "light_ambient", "light_diffuse", "light_specular",
    "light_attenuation", "light_cutoff", "light_exponent",
)  # fmt: skip
_NUMBERS = {
    "headlight": ("active",),
    "map": ("znear", "zfar"),
    "global_": ("offwidth", "offheight"),
    "quality": ("shadowsize", "offsamples", "numslices", "numstacks", "numquads"),
}


def is_plain(model: mujoco.MjModel) -> bool:
    """Whether the model is made of coloured primitives only, as our own scenes are; others are drawn as they are."""
    return not (model.nmesh or model.nhfield or model.nmat or model.nskin or model.nflex)


def flat_model(model: mujoco.MjModel, slices: int) -> mujoco.MjModel:
    """A model of the same geoms, cameras and lights, by the same ids; none of them moves by itself.

    `slices`: facets around the thickest of the round geoms. The model must be plain.
    """
    assert is_plain(model)
    spec = mujoco.MjSpec()
    rounds = np.flatnonzero(np.isin(model.geom_type, ROUND))
    counts = dict(zip(rounds, slices_of(model.geom_size[rounds, 0], slices), strict=True))
    for geom in range(model.ngeom):
        _add_geom(spec, model, geom, counts.get(geom))
    for _ in range(model.ncam):
        spec.worldbody.add_camera()
    for _ in range(model.nlight):
        spec.worldbody.add_light()
    flat = spec.compile()
    for name in _LOOKS:
        getattr(flat, name)[:] = getattr(model, name)
    for name in ("ambient", "diffuse", "specular"):
        getattr(flat.vis.headlight, name)[:] = getattr(model.vis.headlight, name)
    for part, names in _NUMBERS.items():
        for name in names:
            setattr(getattr(flat.vis, part), name, getattr(getattr(model.vis, part), name))
    flat.stat.extent = model.stat.extent
    return flat


def _add_geom(spec: mujoco.MjSpec, model: mujoco.MjModel, geom: int, slices: int | None) -> None:
    kind, size = int(model.geom_type[geom]), model.geom_size[geom]
    if slices is None:
        spec.worldbody.add_geom(type=mujoco.mjtGeom(kind), size=size, contype=0, conaffinity=0)
        return
    vertices, normals, faces = mesh_of(kind, size, slices)
    name = f"geom{geom}"
    spec.add_mesh(name=name, uservert=vertices.ravel(), usernormal=normals.ravel(), userface=faces.ravel())
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, contype=0, conaffinity=0)


class FlatScene:
    """A flat model whose things are kept where those of the real one are."""

    def __init__(self, model: mujoco.MjModel, slices: int) -> None:
        """See `flat_model`; pictures get the size and quality that `model` says."""
        self.model = flat = flat_model(model, slices)
        self._data = mujoco.MjData(flat)
        # A mesh is compiled about its own middle and axes of inertia: a wide cylinder lies on its side.
        axes = np.empty((flat.ngeom, 9))
        for turned, turn in zip(axes, flat.geom_quat, strict=True):
            mujoco.mju_quat2Mat(turned, turn)
        self._axes = axes.reshape(-1, 3, 3)

    def follow(self, data: mujoco.MjData) -> mujoco.MjData:
        """Take over the poses of the real model's data; the data to draw from."""
        shown = self._data
        frames = data.geom_xmat.reshape(-1, 3, 3)
        shown.geom_xpos[:] = data.geom_xpos + (frames @ self.model.geom_pos[:, :, None])[:, :, 0]
        shown.geom_xmat[:] = (frames @ self._axes).reshape(-1, 9)
        shown.cam_xpos[:], shown.cam_xmat[:] = data.cam_xpos, data.cam_xmat
        shown.light_xpos[:], shown.light_xdir[:] = data.light_xpos, data.light_xdir
        return shown
