"""The engine for GPUs, on the processor: close to the C engine, worlds apart, nothing that goes wrong passes unseen."""

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
from embodied_sim.render.ray_tracer import WarpRenderer
from embodied_sim.render.warp_device import DeviceRenderer
from embodied_sim.robots import ROBOTS
from embodied_sim.scene import build_scene
from embodied_sim.vec_env import TabletopVecEnv

SUBSTEPS = 10
STATE = ("qpos", "qvel", "time")
DERIVED = ("site_xpos", "site_xmat", "xpos", "xquat", "xanchor", "xaxis")
DEVICES = ("cpu", "cuda") if warp.is_cuda_available() else ("cpu",)

STIFF = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 1"><freejoint/><geom size=".1" priority="1" solref="-1e9 0"/></body></worldbody></mujoco>"""


def starts(model: mujoco.MjModel, num: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    qpos = np.tile(model.qpos0, (num, 1))
    qpos[:, :4] += rng.uniform(-0.5, 0.5, (num, 4))
    return qpos, rng.normal(size=(num, model.nv)) * 0.1


def started(model: mujoco.MjModel, num: int) -> WarpBackend:
    backend = WarpBackend(model, num)
    backend.set_state(np.arange(num), *starts(model, num))
    return backend


def actions(model: mujoco.MjModel, num: int, steps: int) -> np.ndarray:
    """Joint targets [steps, num, nu] that swing the arm through the cubes."""
    return np.random.default_rng(1).uniform(-1.5, 1.5, (steps, num, model.nu))


def images(backend: WarpBackend) -> list[np.ndarray]:
    return [np.array(getattr(backend, name)) for name in STATE + DERIVED]


def same(a: list[np.ndarray], b: list[np.ndarray], rows: object = slice(None)) -> bool:
    return all(np.array_equal(x[rows], y[rows]) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_the_arm_moves_as_in_the_c_engine_until_it_touches(device):
    c, ours = (
        TabletopVecEnv("lift_cube", 8, backend=name, device=where, autoreset_mode=AutoresetMode.DISABLED)
        for name, where in (("batch", "cpu"), ("warp", device))
    )
    moves = np.random.default_rng(0).uniform(-1, 1, (8, 4)).astype(np.float32)
    moves[:, 2] = np.abs(moves[:, 2])  # away from the table
    for env in (c, ours):
        env.reset(seed=0)
    began = c.state.tool_pos.copy()
    for _ in range(20):
        for env in (c, ours):
            assert not env.step(moves)[-1]["diverged"].any()
        assert np.abs(c.state.tool_pos - ours.state.tool_pos).max() <= 1e-3
        assert np.abs(c.state.object_positions - ours.state.object_positions).max() <= 1e-3
    assert np.linalg.norm(c.state.tool_pos - began, axis=1).mean() > 0.1
    assert ours._backend.time == pytest.approx(c._backend.time, rel=1e-5)


@pytest.mark.parametrize("name", [*DERIVED, "cvel", "xmat", "ten_length"])
def test_what_is_derived_belongs_to_the_state_after_the_step(name):
    model = build_scene((Item("thing"),), ROBOTS["panda"])
    backend = WarpBackend(model, 2)
    backend.read_field(name)
    backend.qvel[1] += 0.3
    backend.step(SUBSTEPS)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = backend.qpos[1], backend.qvel[1]
    mujoco.mj_forward(model, data)
    assert backend.read_field(name)[1] == pytest.approx(getattr(data, name), abs=2e-6)


def test_the_same_rollout_is_the_same_to_the_last_bit(model):
    one, other = started(model, 4), started(model, 4)
    for targets in actions(model, 4, 10):
        for backend in (one, other):
            backend.ctrl[:] = targets
            assert not backend.step(SUBSTEPS).any()
    assert same(images(one), images(other))


def test_set_state_makes_a_env_like_new_and_touches_no_other(model):
    backend, untouched = started(model, 5), started(model, 5)
    swing = actions(model, 5, 12)
    for targets in swing[:6]:
        for envs in (backend, untouched):
            envs.ctrl[:] = targets
            envs.step(SUBSTEPS)
    rows, others = np.array([3, 0]), [1, 2, 4]
    backend.mocap_pos[3, 0] = (0.1, -0.4, 0.2)
    backend.set_state(rows, *starts(model, 2, seed=7))
    assert backend.qpos[rows] == pytest.approx(starts(model, 2, seed=7)[0], abs=1e-6)
    assert not backend.ctrl[rows].any() and not backend.time[rows].any()
    assert backend.xpos[3, model.body("crate").id] == pytest.approx((0.1, -0.4, 0.2))
    assert same(images(backend), images(untouched), others)
    fresh = WarpBackend(model, 1)
    fresh.mocap_pos[0, 0] = (0.1, -0.4, 0.2)
    fresh.set_state(np.array([0]), *(x[:1] for x in starts(model, 2, seed=7)))
    for targets in swing[6:]:
        for envs in (backend, untouched, fresh):
            envs.ctrl[:] = targets[3] if envs is fresh else targets
            envs.step(SUBSTEPS)
    assert same(images(backend), images(untouched), others)
    assert np.array_equal(backend.qpos[3], fresh.qpos[0])  # nothing is left from before: no warm start, no place


def inject(backend: WarpBackend, row: int, kind: str) -> None:
    match kind:
        case "speed not a number":
            backend.qvel[row, 5] = np.nan
        case "place infinite":
            backend.qpos[row, 0] = np.inf
        case "control not a number":
            backend.ctrl[row, 1] = np.nan
        case "too fast":
            backend.qvel[row, 0] = 1e7
        case "beyond float32":
            backend.qvel[row, 0] = 1e60
        case "control too strong":
            backend.ctrl[row, 2] = 1e14


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("speed not a number", "QVEL"),
        ("place infinite", "QPOS"),
        ("control not a number", "CTRL"),
        ("too fast", "speed"),
        ("beyond float32", "speed"),
        ("control too strong", ""),
    ],
)
def test_a_fault_is_found_in_its_step_and_no_other_env_moves_a_bit(model, kind, word):
    backend, clean = started(model, 3), started(model, 3)
    backend.step(1), clean.step(1)
    before = images(backend)
    inject(backend, 1, kind)
    for targets in actions(model, 3, 4):
        backend.ctrl[[0, 2]] = clean.ctrl[[0, 2]] = targets[[0, 2]]
        assert backend.step(SUBSTEPS).tolist() == [False, True, False]
        assert not clean.step(SUBSTEPS).any()
        assert same(images(backend), before, [1]), "it stands where it last was good"
        assert same(images(backend), images(clean), [0, 2])
        backend.qpos[1] = 0.5  # a write does not wake it
    assert word in backend.divergence_reasons()[1]
    backend.set_state(np.array([1]), *starts(model, 1))
    assert not backend.divergence_reasons() and not backend.step(SUBSTEPS).any()


def test_a_contact_that_explodes_is_found_in_its_step():
    backend = WarpBackend(mujoco.MjModel.from_xml_string(STIFF), 2)
    assert not backend.step(1).any()
    backend.qpos[1, 2] = 0.05  # half sunk into a floor as stiff as no time step can follow
    falling = backend.qpos[0, 2]
    assert backend.step(SUBSTEPS).tolist() == [False, True]
    assert np.isfinite(backend.qpos).all() and backend.qpos[1, 2] > 0.9 and backend.qpos[0, 2] < falling


@pytest.mark.parametrize(
    ("budget", "what", "found"),
    [
        (ContactLimits(max_contacts=64, max_constraints=8), "constraints than the room for 8", [False, True]),
        (
            ContactLimits(max_contacts=1, max_constraints=200),
            "contacts than the room for 1",
            [True, True],
        ),  # room is shared
    ],
)
def test_what_does_not_fit_the_budget_is_reported(budget, what, found):
    model = build_scene((Item("thing"),), ROBOTS["panda"])
    backend = WarpBackend(model, 2, contact_limits=budget)
    qpos = np.tile(model.qpos0, (2, 1))
    qpos[0, model.joint("thing").qposadr[0] + 2] = 0.5  # one world has the thing in the air
    qpos[1, model.joint("thing").qposadr[0] + 2] -= 0.001
    backend.set_state(np.arange(2), qpos, np.zeros((2, model.nv)))
    with pytest.warns(RuntimeWarning, match=f"stands still: more {what}"):
        assert backend.step(1).tolist() == found
    remedy = f"set contacts (world.contacts on the command line) to more than {budget.contacts}"
    assert what in backend.divergence_reasons()[1] and remedy in backend.divergence_reasons()[1]


def test_the_remedy_for_too_little_room_works():
    # What lies on the table touches it in more than one point.
    still = np.zeros((2, 4), np.float32)
    tight = TabletopVecEnv("lift_cube", 2, backend="warp", max_contacts=1, autoreset_mode=AutoresetMode.DISABLED)
    tight.reset(seed=0)
    with pytest.warns(RuntimeWarning, match="to more than 1"):
        assert tight.step(still)[-1]["diverged"].all()
    ample = ContactLimits.from_model(tight.model)
    roomy = TabletopVecEnv(
        "lift_cube", 2, backend="warp", max_contacts=ample.max_contacts + 1, autoreset_mode=AutoresetMode.DISABLED
    )
    roomy.reset(seed=0)
    assert not roomy.step(still)[-1]["diverged"].any()
    more = ContactLimits.from_model(tight.model, ample.max_contacts + 1)
    assert more.max_contacts > ample.max_contacts and more.max_constraints > ample.max_constraints
    tight.close(), roomy.close()


def test_a_heavier_thing_weighs_in_every_constant_as_if_compiled_so():
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
            ours = getattr(backend.warp_model, name).numpy()[row]
            assert ours == pytest.approx(getattr(compiled, name).reshape(ours.shape), rel=1e-3, abs=1e-7), (name, row)


def test_less_friction_slides_farther_and_looks_move_nothing():
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


def test_every_variable_field_starts_as_the_model_has_it(model):
    backend = WarpBackend(model, 2)
    for name in VARIABLE_FIELDS:
        assert backend.expand_field(name) == pytest.approx(np.stack([getattr(model, name)] * 2), rel=1e-6), name


@pytest.mark.parametrize("device", DEVICES)
def test_torch_shares_the_memory_of_the_envs(model, device):
    backend = WarpBackend(model, 2, device)
    qpos, ctrl = backend.as_tensor("qpos"), backend.as_tensor("ctrl")
    ctrl[1] = 0.7
    backend.step(SUBSTEPS)
    assert backend.ctrl[1] == pytest.approx(0.7) and not backend.ctrl[0].any()
    assert np.array_equal(qpos.cpu().numpy(), backend.qpos)
    assert not np.array_equal(backend.qpos[0], backend.qpos[1])
    backend.ctrl[0] = 0.7  # what the host writes goes before
    backend.step(1)
    assert ctrl[0].cpu().numpy() == pytest.approx(0.7)
    assert backend.as_tensor("sensordata").shape == (2, 0)


@pytest.mark.parametrize("device", DEVICES)
def test_images_drawn_on_the_device_are_those_drawn_from_the_host(model, device):
    backend = WarpBackend(model, 3, device)
    backend.set_state(np.arange(3), *starts(model, 3))
    views, size, rows = ("front", "wrist"), (24, 32), np.array([2, 0, 2])
    ours, host = DeviceRenderer(backend, views, size), WarpRenderer(backend, views, size)
    backend.expand_field("geom_rgba")[1, 1, :3] = (0, 1, 0)
    backend.expand_field("cam_fovy")[2] += 10
    backend.qpos[0, 0] += 0.5  # not stepped yet: an image shows it nevertheless
    frames = ours.render(rows)
    assert frames.shape == (3, 2, 24, 32, 3) and frames.dtype == np.uint8
    assert np.abs(frames - host.render(rows).astype(int)).max() <= (0 if device == "cpu" else 1)
    assert torch.equal(ours.render_torch(rows).cpu(), torch.from_numpy(frames))
    ours.close(), host.close()


@pytest.mark.parametrize(("task", "robot"), list(zip(task_names(), cycle(ROBOTS), strict=False)))
def test_every_expert_succeeds(task, robot):
    """The arms take turns; `embodied-rm bench experts` plays more episodes of every task with every arm."""
    assert expert_success_rate(task, robot, "warp", 4) == 1
