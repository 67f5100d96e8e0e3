"""Visual copy of a scene: all geoms, cameras and lights in the world frame, round shapes as small meshes."""

import mujoco
import numpy as np

from embodied_sim.render.tessellation import ROUND_GEOM_TYPES, make_mesh, slices_for_radii

_VISUAL_FIELDS = (
    "geom_rgba", "geom_group", "cam_fovy", "cam_resolution", "cam_sensorsize", "cam_intrinsic",
    "light_type", "light_active", "light_castshadow", "light_ambient", "light_diffuse", "light_specular",
    "light_attenuation", "light_cutoff", "light_exponent",
)  # fmt: skip
_VIS_SETTINGS = {
    "headlight": ("active",),
    "map": ("znear", "zfar"),
    "global_": ("offwidth", "offheight"),
    "quality": ("shadowsize", "offsamples", "numslices", "numstacks", "numquads"),
}


def is_primitive_only(model: mujoco.MjModel) -> bool:
    """Return whether the model consists of colored primitives only; other models are drawn unchanged."""
    return not (model.nmesh or model.nhfield or model.nmat or model.nskin or model.nflex)


def flatten_model(model: mujoco.MjModel, slices: int) -> mujoco.MjModel:
    """Return a static model with the same geoms, cameras and lights under the same ids.

    `model` consists of primitives only. `slices` are the facets around its thickest round geom.
    """
    assert is_primitive_only(model)
    spec = mujoco.MjSpec()
    round_geoms = np.flatnonzero(np.isin(model.geom_type, ROUND_GEOM_TYPES))
    counts = dict(zip(round_geoms, slices_for_radii(model.geom_size[round_geoms, 0], slices), strict=True))
    for geom in range(model.ngeom):
        _add_geom(spec, model, geom, counts.get(geom))
    for _ in range(model.ncam):
        spec.worldbody.add_camera()
    for _ in range(model.nlight):
        spec.worldbody.add_light()
    flat = spec.compile()
    for name in _VISUAL_FIELDS:
        getattr(flat, name)[:] = getattr(model, name)
    for name in ("ambient", "diffuse", "specular"):
        getattr(flat.vis.headlight, name)[:] = getattr(model.vis.headlight, name)
    for part, names in _VIS_SETTINGS.items():
        for name in names:
            setattr(getattr(flat.vis, part), name, getattr(getattr(model.vis, part), name))
    flat.stat.extent = model.stat.extent
    return flat


def _add_geom(spec: mujoco.MjSpec, model: mujoco.MjModel, geom: int, slices: int | None) -> None:
    kind, size = int(model.geom_type[geom]), model.geom_size[geom]
    if slices is None:
        spec.worldbody.add_geom(type=mujoco.mjtGeom(kind), size=size, contype=0, conaffinity=0)
        return
    vertices, normals, faces = make_mesh(kind, size, slices)
    name = f"geom{geom}"
    spec.add_mesh(name=name, uservert=vertices.ravel(), usernormal=normals.ravel(), userface=faces.ravel())
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, contype=0, conaffinity=0)


class FlatScene:
    """A flattened model whose poses follow those of the original."""

    def __init__(self, model: mujoco.MjModel, slices: int) -> None:
        """Flatten `model`, see `flatten_model`; image size and quality are those of `model`."""
        self.model = flat = flatten_model(model, slices)
        self._data = mujoco.MjData(flat)
        # The compiler moves a mesh to its center and principal axes of inertia: a wide cylinder lies on its side.
        axes = np.empty((flat.ngeom, 9))
        for axes_out, quat in zip(axes, flat.geom_quat, strict=True):
            mujoco.mju_quat2Mat(axes_out, quat)
        self._geom_axes = axes.reshape(-1, 3, 3)

    def update(self, data: mujoco.MjData) -> mujoco.MjData:
        """Copy the poses of the original model's data, and return the data to draw."""
        flat_data = self._data
        frames = data.geom_xmat.reshape(-1, 3, 3)
        flat_data.geom_xpos[:] = data.geom_xpos + (frames @ self.model.geom_pos[:, :, None])[:, :, 0]
        flat_data.geom_xmat[:] = (frames @ self._geom_axes).reshape(-1, 9)
        flat_data.cam_xpos[:], flat_data.cam_xmat[:] = data.cam_xpos, data.cam_xmat
        flat_data.light_xpos[:], flat_data.light_xdir[:] = data.light_xpos, data.light_xdir
        return flat_data
