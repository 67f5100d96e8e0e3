"""The CPU engine is bit-identical to MuJoCo, and a diverged world is reported without effect on others."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from embodied_sim.backends import PhysicsBackend, make_backend
from embodied_sim.sim_errors import SimError

STEPS, SUBSTEPS = 200, 10
STATE_FIELDS = ("qpos", "qvel", "time")
DERIVED_FIELDS = ("site_xpos", "site_xmat", "xpos", "xquat", "xanchor", "xaxis")


def start_states(model: mujoco.MjModel, num: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    qpos = np.tile(model.qpos0, (num, 1))
    qpos[:, :4] += rng.uniform(-0.5, 0.5, (num, 4))
    return qpos, rng.normal(size=(num, model.nv)) * 0.1


def make_started_backend(model: mujoco.MjModel, num: int, threads: int = 2) -> PhysicsBackend:
    backend = make_backend("batch", model, num, threads)
    backend.set_state(np.arange(num), *start_states(model, num))
    return backend


def joint_targets(model: mujoco.MjModel, num: int, steps: int) -> np.ndarray:
    """Return joint targets [steps, num, nu] that swing the arm through the cubes."""
    return np.random.default_rng(1).uniform(-1.5, 1.5, (steps, num, model.nu))


def copy_fields(backend: PhysicsBackend, names: tuple[str, ...] = STATE_FIELDS + DERIVED_FIELDS) -> list[np.ndarray]:
    return [np.array(getattr(backend, name)) for name in names]


def all_equal(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_equals_a_loop_of_mj_step(model: mujoco.MjModel) -> None:
    num = 4
    backend, worlds = make_started_backend(model, num), [mujoco.MjData(model) for _ in range(num)]
    for data, qpos, qvel in zip(worlds, *start_states(model, num), strict=True):
        data.qpos[:], data.qvel[:] = qpos, qvel
    contacts = 0
    for step, targets in enumerate(joint_targets(model, num, STEPS)):
        backend.ctrl[:] = targets
        if step % 20 == 3:  # a write to the state between two steps takes effect too
            backend.qvel[2, 4:7] += 0.5
            worlds[2].qvel[4:7] += 0.5
        assert not backend.step(SUBSTEPS).any()
        for data, target in zip(worlds, targets, strict=True):
            data.ctrl[:] = target
            mujoco.mj_step(model, data, SUBSTEPS)
            contacts += data.ncon
        for name in STATE_FIELDS:
            assert np.array_equal(getattr(backend, name), [getattr(data, name) for data in worlds]), (step, name)
    assert contacts > STEPS  # the test needs contacts
    for data in worlds:
        mujoco.mj_forward(model, data)
    for name in DERIVED_FIELDS:
        assert np.array_equal(getattr(backend, name), [getattr(data, name) for data in worlds]), name


@pytest.mark.parametrize("threads", [1, 3])
def test_number_of_threads_changes_nothing(model: mujoco.MjModel, threads: int) -> None:
    one, other = make_started_backend(model, 8, 2), make_started_backend(model, 8, threads)
    for targets in joint_targets(model, 8, 50):
        for backend in (one, other):
            backend.ctrl[:] = targets
            backend.step(SUBSTEPS)
    assert all_equal(copy_fields(one), copy_fields(other))


def inject(backend: PhysicsBackend, row: int, kind: int) -> None:
    """Make a world diverge in one of seven ways."""
    match kind:
        case 0:
            backend.qvel[row, 5] = np.nan
        case 1:
            backend.qpos[row, 0] = np.inf
        case 2:
            backend.ctrl[row, 1] = np.nan
        case 3:
            backend.qvel[row, 0] = 1e7
        case 4:
            backend.ctrl[row, 2] = 1e14  # finite: the solver blows up
        case 5:
            backend.qvel[row] = -np.inf
        case 6:
            backend.qvel[row, 3] = 1.1e4  # damping slows it down within the step


def test_divergences_are_reported_in_their_step_and_leave_other_worlds_unchanged(model: mujoco.MjModel) -> None:
    num, steps, num_affected = 12, 300, 6
    backend, clean = make_started_backend(model, num), make_started_backend(model, num)
    qpos, qvel = start_states(model, num)
    rng = np.random.default_rng(2)
    injected = 0
    for targets in joint_targets(model, num, steps):
        backend.ctrl[:], clean.ctrl[:] = targets, targets
        bad = np.flatnonzero(rng.random(num) < 0.03)
        bad = bad[bad < num_affected]  # the other half must not change
        for row in bad:
            inject(backend, int(row), injected % 7)
            injected += 1
        diverged = backend.step(SUBSTEPS)
        assert np.flatnonzero(diverged).tolist() == bad.tolist() == sorted(backend.divergence_reasons())
        assert not clean.step(SUBSTEPS).any()
        for values, expected in zip(copy_fields(backend), copy_fields(clean), strict=True):
            assert np.isfinite(values).all()
            assert np.array_equal(values[num_affected:], expected[num_affected:])
        if len(bad):
            backend.set_state(bad, qpos[bad], qvel[bad])
            assert backend.divergence_reasons() == {}
    assert injected > 30


def test_diverged_world_keeps_its_last_valid_state_until_set_state(model: mujoco.MjModel) -> None:
    backend = make_started_backend(model, 3)
    backend.step(SUBSTEPS)
    before = copy_fields(backend)
    backend.qvel[1, 0] = np.nan
    for targets in joint_targets(model, 3, 5):
        backend.ctrl[:] = targets
        backend.qpos[1] = 0.5  # a write does not revive it
        assert backend.step(SUBSTEPS).tolist() == [False, True, False]
        for was, now in zip(before, copy_fields(backend), strict=True):
            assert np.array_equal(was[1], now[1])
    assert "QVEL" in backend.divergence_reasons()[1]
    qpos, qvel = start_states(model, 3)
    backend.set_state(np.array([1]), qpos[:1], qvel[:1])
    assert not backend.step(SUBSTEPS).any()
    assert backend.time[1] == pytest.approx(SUBSTEPS * model.opt.timestep)


def test_set_state_resets_its_worlds_only(model: mujoco.MjModel) -> None:
    backend = make_started_backend(model, 5)
    for targets in joint_targets(model, 5, 20):
        backend.ctrl[:] = targets
        backend.step(SUBSTEPS)
    before = copy_fields(backend)
    rows = np.array([3, 0])
    qpos, qvel = start_states(model, 2, seed=7)
    backend.set_state(rows, qpos, qvel)
    assert not backend.ctrl[rows].any()
    for row, start, speed in zip(rows, qpos, qvel, strict=True):
        fresh = mujoco.MjData(model)
        fresh.qpos[:], fresh.qvel[:] = start, speed
        mujoco.mj_forward(model, fresh)
        for name in STATE_FIELDS + DERIVED_FIELDS:
            assert np.array_equal(getattr(backend, name)[row], getattr(fresh, name)), name
    others = [1, 2, 4]
    assert all_equal([x[others] for x in before], [x[others] for x in copy_fields(backend)])
    fresh = mujoco.MjData(model)
    fresh.qpos[:], fresh.qvel[:] = qpos[0], qvel[0]
    mujoco.mj_step(model, fresh, SUBSTEPS)
    backend.step(SUBSTEPS)
    assert np.array_equal(backend.qpos[3], fresh.qpos)  # no warm start remains


def test_set_state_keeps_mocap_poses(model: mujoco.MjModel) -> None:
    backend = make_started_backend(model, 2)
    backend.mocap_pos[1, 0] = (0.1, -0.4, 0.2)
    qpos, qvel = start_states(model, 1)
    backend.set_state(np.array([1]), qpos, qvel)
    crate = model.body("crate").id
    assert backend.xpos[1, crate].tolist() == [0.1, -0.4, 0.2]
    assert backend.xpos[0, crate].tolist() == model.body("crate").pos.tolist()


def test_read_field_is_current(model: mujoco.MjModel) -> None:
    backend = make_started_backend(model, 2)
    backend.step(SUBSTEPS)
    velocity = backend.read_field("cvel")
    for _ in range(2):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = backend.qpos[1], backend.qvel[1]
        mujoco.mj_forward(model, data)
        assert np.array_equal(velocity[1], data.cvel)
        backend.step(SUBSTEPS)


def test_read_field_changes_no_trajectory(model: mujoco.MjModel) -> None:
    one, other = make_started_backend(model, 2), make_started_backend(model, 2)
    for targets in joint_targets(model, 2, 20):
        for backend in (one, other):
            backend.ctrl[:] = targets
            backend.step(SUBSTEPS)
        one.read_field("cvel")
    assert all_equal(copy_fields(one), copy_fields(other))


def log_settings() -> tuple[bool, bool, str]:
    now = mujoco.MjLogConfig.get()
    return now.logto_console, now.logto_file, now.logfile


def test_divergence_writes_no_log_and_changes_no_global_settings(
    model: mujoco.MjModel, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("quiet")
    monkeypatch.chdir(folder)
    flags, logging = model.opt.disableflags, log_settings()
    backend = make_started_backend(model, 2)
    backend.qvel[0, 0] = np.nan
    assert backend.step(1).tolist() == [True, False]
    assert list(folder.iterdir()) == []  # MuJoCo would write MUJOCO_LOG.TXT
    assert model.opt.disableflags == flags
    assert log_settings() == logging


def test_unknown_backend_is_an_error_with_the_choices(model: mujoco.MjModel) -> None:
    with pytest.raises(SimError, match=r"unknown backend 'bach'. Did you mean 'batch'\? Available: batch"):
        make_backend("bach", model, 1, 1)
