"""The GPU engine on the CPU: close to the C engine, independent worlds, and all divergences are reported."""

from itertools import cycle

import mujoco
import numpy as np
import pytest
import torch
import warp
from gymnasium.vector import AutoresetMode

from embodied_sim.backends.backend import VARIABLE_FIELDS
from embodied_sim.backends.contact_limits import ContactLimits
from embodied_sim.backends.mujoco_warp_backend import WarpBackend
from embodied_sim.bench.expert_success import expert_success_rate
from embodied_sim.props import Item
from embodied_sim.registry import task_names
from embodied_sim.render.ray_tracer import DeviceRenderer, WarpRenderer
from embodied_sim.robots import ROBOTS
from embodied_sim.scene import build_scene
from embodied_sim.vec_env import TabletopVecEnv

SUBSTEPS = 10
STATE_FIELDS = ("qpos", "qvel", "time")
DERIVED_FIELDS = ("site_xpos", "site_xmat", "xpos", "xquat", "xanchor", "xaxis")
DEVICES = ("cpu", "cuda") if warp.is_cuda_available() else ("cpu",)

STIFF_MJCF = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 1"><freejoint/><geom size=".1" priority="1" solref="-1e9 0"/></body></worldbody></mujoco>"""


def start_states(model: mujoco.MjModel, num: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    qpos = np.tile(model.qpos0, (num, 1))
    qpos[:, :4] += rng.uniform(-0.5, 0.5, (num, 4))
    return qpos, rng.normal(size=(num, model.nv)) * 0.1


def make_started_backend(model: mujoco.MjModel, num: int) -> WarpBackend:
    backend = WarpBackend(model, num)
    backend.set_state(np.arange(num), *start_states(model, num))
    return backend


def joint_targets(model: mujoco.MjModel, num: int, steps: int) -> np.ndarray:
    """Return joint targets [steps, num, nu] that swing the arm through the cubes."""
    return np.random.default_rng(1).uniform(-1.5, 1.5, (steps, num, model.nu))


def copy_fields(backend: WarpBackend) -> list[np.ndarray]:
    return [np.array(getattr(backend, name)) for name in STATE_FIELDS + DERIVED_FIELDS]


def all_equal(a: list[np.ndarray], b: list[np.ndarray], rows: object = slice(None)) -> bool:
    return all(np.array_equal(x[rows], y[rows]) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_arm_moves_as_in_the_c_engine_without_contact(device):
    c_env, warp_env = (
        TabletopVecEnv("lift_cube", 8, backend=name, device=name_device, autoreset_mode=AutoresetMode.DISABLED)
        for name, name_device in (("batch", "cpu"), ("warp", device))
    )
    moves = np.random.default_rng(0).uniform(-1, 1, (8, 4)).astype(np.float32)
    moves[:, 2] = np.abs(moves[:, 2])  # away from the table
    for env in (c_env, warp_env):
        env.reset(seed=0)
    start_pos = c_env.state.tool_pos.copy()
    for _ in range(20):
        for env in (c_env, warp_env):
            assert not env.step(moves)[-1]["diverged"].any()
        assert np.abs(c_env.state.tool_pos - warp_env.state.tool_pos).max() <= 1e-3
        assert np.abs(c_env.state.object_positions - warp_env.state.object_positions).max() <= 1e-3
    assert np.linalg.norm(c_env.state.tool_pos - start_pos, axis=1).mean() > 0.1
    assert warp_env._backend.time == pytest.approx(c_env._backend.time, rel=1e-5)


@pytest.mark.parametrize("name", [*DERIVED_FIELDS, "cvel", "xmat", "ten_length"])
def test_derived_fields_are_current_after_the_step(name):
    model = build_scene((Item("thing"),), ROBOTS["panda"])
    backend = WarpBackend(model, 2)
    backend.read_field(name)
    backend.qvel[1] += 0.3
    backend.step(SUBSTEPS)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = backend.qpos[1], backend.qvel[1]
    mujoco.mj_forward(model, data)
    assert backend.read_field(name)[1] == pytest.approx(getattr(data, name), abs=2e-6)


def test_rollouts_are_bit_identical(model):
    one, other = make_started_backend(model, 4), make_started_backend(model, 4)
    for targets in joint_targets(model, 4, 10):
        for backend in (one, other):
            backend.ctrl[:] = targets
            assert not backend.step(SUBSTEPS).any()
    assert all_equal(copy_fields(one), copy_fields(other))


def test_set_state_resets_its_worlds_only(model):
    backend, untouched = make_started_backend(model, 5), make_started_backend(model, 5)
    targets_by_step = joint_targets(model, 5, 12)
    for targets in targets_by_step[:6]:
        for engine in (backend, untouched):
            engine.ctrl[:] = targets
            engine.step(SUBSTEPS)
    rows, others = np.array([3, 0]), [1, 2, 4]
    backend.mocap_pos[3, 0] = (0.1, -0.4, 0.2)
    backend.set_state(rows, *start_states(model, 2, seed=7))
    assert backend.qpos[rows] == pytest.approx(start_states(model, 2, seed=7)[0], abs=1e-6)
    assert not backend.ctrl[rows].any() and not backend.time[rows].any()
    assert backend.xpos[3, model.body("crate").id] == pytest.approx((0.1, -0.4, 0.2))
    assert all_equal(copy_fields(backend), copy_fields(untouched), others)
    fresh = WarpBackend(model, 1)
    fresh.mocap_pos[0, 0] = (0.1, -0.4, 0.2)
    fresh.set_state(np.array([0]), *(x[:1] for x in start_states(model, 2, seed=7)))
    for targets in targets_by_step[6:]:
        for engine in (backend, untouched, fresh):
            engine.ctrl[:] = targets[3] if engine is fresh else targets
            engine.step(SUBSTEPS)
    assert all_equal(copy_fields(backend), copy_fields(untouched), others)
    assert np.array_equal(backend.qpos[3], fresh.qpos[0])  # no warm start or position remains


def inject(backend: WarpBackend, row: int, kind: str) -> None:
    match kind:
        case "speed is NaN":
            backend.qvel[row, 5] = np.nan
        case "position is infinite":
            backend.qpos[row, 0] = np.inf
        case "control is NaN":
            backend.ctrl[row, 1] = np.nan
        case "speed too high":
            backend.qvel[row, 0] = 1e7
        case "speed beyond float32":
            backend.qvel[row, 0] = 1e60
        case "control too large":
            backend.ctrl[row, 2] = 1e14


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("speed is NaN", "QVEL"),
        ("position is infinite", "QPOS"),
        ("control is NaN", "CTRL"),
        ("speed too high", "speed"),
        ("speed beyond float32", "speed"),
        ("control too large", ""),
    ],
)
def test_divergence_is_reported_in_its_step_and_leaves_other_worlds_unchanged(model, kind, reason):
    backend, clean = make_started_backend(model, 3), make_started_backend(model, 3)
    backend.step(1), clean.step(1)
    before = copy_fields(backend)
    inject(backend, 1, kind)
    for targets in joint_targets(model, 3, 4):
        backend.ctrl[[0, 2]] = clean.ctrl[[0, 2]] = targets[[0, 2]]
        assert backend.step(SUBSTEPS).tolist() == [False, True, False]
        assert not clean.step(SUBSTEPS).any()
        assert all_equal(copy_fields(backend), before, [1]), "it keeps its last valid state"
        assert all_equal(copy_fields(backend), copy_fields(clean), [0, 2])
        backend.qpos[1] = 0.5  # a write does not revive it
    assert reason in backend.divergence_reasons()[1]
    backend.set_state(np.array([1]), *start_states(model, 1))
    assert not backend.divergence_reasons() and not backend.step(SUBSTEPS).any()


def test_exploding_contact_is_reported_in_its_step():
    backend = WarpBackend(mujoco.MjModel.from_xml_string(STIFF_MJCF), 2)
    assert not backend.step(1).any()
    backend.qpos[1, 2] = 0.05  # half inside a floor that is too stiff for the time step
    falling = backend.qpos[0, 2]
    assert backend.step(SUBSTEPS).tolist() == [False, True]
    assert np.isfinite(backend.qpos).all() and backend.qpos[1, 2] > 0.9 and backend.qpos[0, 2] < falling


@pytest.mark.parametrize(
    ("limits", "message", "diverged"),
    [
        (ContactLimits(max_contacts=64, max_constraints=8), "more than max_constraints=8 per world", [False, True]),
        (
            ContactLimits(max_contacts=1, max_constraints=200),
            "more than max_contacts=1 per world",
            [True, True],
        ),  # the contact pool is shared
    ],
)
def test_exceeded_contact_limits_are_reported(limits, message, diverged):
    model = build_scene((Item("thing"),), ROBOTS["panda"])
    backend = WarpBackend(model, 2, contact_limits=limits)
    qpos = np.tile(model.qpos0, (2, 1))
    qpos[0, model.joint("thing").qposadr[0] + 2] = 0.5  # in one world the object is in the air
    qpos[1, model.joint("thing").qposadr[0] + 2] -= 0.001
    backend.set_state(np.arange(2), qpos, np.zeros((2, model.nv)))
    with pytest.warns(RuntimeWarning, match=f"has diverged: {message}"):
        assert backend.step(1).tolist() == diverged
    remedy = f"set max_contacts (env.max_contacts on the command line) to more than {limits.max_contacts}"
    assert message in backend.divergence_reasons()[1] and remedy in backend.divergence_reasons()[1]


def test_raising_the_contact_limit_works():
    # Objects on the table touch it at more than one point.
    no_action = np.zeros((2, 4), np.float32)
    tight = TabletopVecEnv("lift_cube", 2, backend="warp", max_contacts=1, autoreset_mode=AutoresetMode.DISABLED)
    tight.reset(seed=0)
    with pytest.warns(RuntimeWarning, match="to more than 1"):
        assert tight.step(no_action)[-1]["diverged"].all()
    ample = ContactLimits.from_model(tight.model)
    roomy = TabletopVecEnv(
        "lift_cube", 2, backend="warp", max_contacts=ample.max_contacts + 1, autoreset_mode=AutoresetMode.DISABLED
    )
    roomy.reset(seed=0)
    assert not roomy.step(no_action)[-1]["diverged"].any()
    more = ContactLimits.from_model(tight.model, ample.max_contacts + 1)
    assert more.max_contacts > ample.max_contacts and more.max_constraints > ample.max_constraints
    tight.close(), roomy.close()


def test_mass_changes_all_derived_fields():
    model = build_scene((Item("thing"),), ROBOTS["panda"])
    backend = WarpBackend(model, 3)
    for name in ("body_mass", "body_inertia"):
        backend.expand_field(name)[1, model.body("thing").id] *= 4
    backend.set_state(np.arange(3), np.tile(model.qpos0, (3, 1)), np.zeros((3, model.nv)))
    heavy = build_scene((Item("thing"),), ROBOTS["panda"])
    heavy.body("thing").mass *= 4
    heavy.body("thing").inertia *= 4
    mujoco.mj_setConst(heavy, mujoco.MjData(heavy))
    for name in ("body_subtreemass", "body_invweight0", "dof_invweight0", "tendon_invweight0"):
        for row, compiled in enumerate((model, heavy, model)):
            value = getattr(backend.warp_model, name).numpy()[row]
            expected = getattr(compiled, name).reshape(value.shape)
            assert value == pytest.approx(expected, rel=1e-3, abs=1e-7), (name, row)


def test_friction_changes_the_motion_and_colors_do_not():
    model = build_scene((Item("thing"),), ROBOTS["panda"])
    backend = WarpBackend(model, 3)
    assert not backend.expanded_fields
    for geom in ("thing", "table"):
        backend.expand_field("geom_friction")[2, model.geom(geom).id] = 0.01
    backend.expand_field("geom_rgba")[1] *= 0.5
    assert set(backend.expanded_fields) == {"geom_friction", "geom_rgba"}
    velocity = np.zeros((3, model.nv))
    velocity[:, -6] = -0.5
    backend.set_state(np.arange(3), np.tile(model.qpos0, (3, 1)), velocity)
    start = backend.qpos[:, -7].copy()
    for _ in range(10):
        assert not backend.step(SUBSTEPS).any()
    slid = start - backend.qpos[:, -7]
    assert slid[2] > slid[0] + 0.02
    assert np.array_equal(backend.qpos[0], backend.qpos[1])


def test_expanded_fields_start_with_the_model_values(model):
    backend = WarpBackend(model, 2)
    for name in VARIABLE_FIELDS:
        assert backend.expand_field(name) == pytest.approx(np.stack([getattr(model, name)] * 2), rel=1e-6), name


@pytest.mark.parametrize("device", DEVICES)
def test_tensor_shares_memory_with_the_worlds(model, device):
    backend = WarpBackend(model, 2, device)
    qpos, ctrl = backend.as_tensor("qpos"), backend.as_tensor("ctrl")
    ctrl[1] = 0.7
    backend.step(SUBSTEPS)
    assert backend.ctrl[1] == pytest.approx(0.7) and not backend.ctrl[0].any()
    assert np.array_equal(qpos.cpu().numpy(), backend.qpos)
    assert not np.array_equal(backend.qpos[0], backend.qpos[1])
    backend.ctrl[0] = 0.7  # host writes take precedence
    backend.step(1)
    assert ctrl[0].cpu().numpy() == pytest.approx(0.7)
    assert backend.as_tensor("sensordata").shape == (2, 0)


@pytest.mark.parametrize("device", DEVICES)
def test_device_renderer_equals_host_renderer(model, device):
    backend = WarpBackend(model, 3, device)
    backend.set_state(np.arange(3), *start_states(model, 3))
    views, size, rows = ("front", "wrist"), (24, 32), np.array([2, 0, 2])
    device_renderer, host = DeviceRenderer(backend, views, size), WarpRenderer(backend, views, size)
    backend.expand_field("geom_rgba")[1, 1, :3] = (0, 1, 0)
    backend.expand_field("cam_fovy")[2] += 10
    backend.qpos[0, 0] += 0.5  # images show it before the next step
    frames = device_renderer.render(rows)
    assert frames.shape == (3, 2, 24, 32, 3) and frames.dtype == np.uint8
    assert np.abs(frames - host.render(rows).astype(int)).max() <= (0 if device == "cpu" else 1)
    assert torch.equal(device_renderer.render_torch(rows).cpu(), torch.from_numpy(frames))
    device_renderer.close(), host.close()


@pytest.mark.parametrize(("task", "robot"), list(zip(task_names(), cycle(ROBOTS), strict=False)))
def test_every_expert_succeeds(task, robot):
    """One arm per task; `embodied-rm bench experts` plays more episodes of every task with every arm."""
    assert expert_success_rate(task, robot, "warp", 4) == 1
