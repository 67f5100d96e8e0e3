"""Domain randomization depends on the seed only, its settings are independent, and layouts do not change."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.control import ActionDelay
from embodied_sim.domain_randomization import Randomization
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

ALL_DEVIATIONS = Randomization(
    camera_shift=0.03,
    camera_rotation=0.05,
    light_rotation=0.3,
    brightness=0.2,
    color=0.1,
    friction=0.3,
    mass=0.5,
    latency=2,
)
ROWS = np.arange(4)


def make_envs(randomize=None, seed=0):
    env = TabletopVecEnv("lift_cube", 4, autoreset_mode=AutoresetMode.DISABLED, randomize=randomize)
    obs, _ = env.reset(seed=seed)
    return env, obs


def test_randomization_depends_on_the_seed_only():
    images, layouts = [], []
    for seed in (0, 0, 1):
        env, _ = make_envs(ALL_DEVIATIONS, seed)
        env.reset(options={"reset_mask": np.array([False, True, False, False])})
        images.append(env.render_views(ROWS))
        layouts.append({name: value.copy() for name, value in env._backend.expanded_fields.items()})
        env.close()
    assert np.array_equal(images[0], images[1]) and not np.array_equal(images[0], images[2])
    assert all(np.array_equal(layouts[0][name], layouts[1][name]) for name in ALL_DEVIATIONS.varied_fields)
    assert all(len(np.unique(value, axis=0)) == 4 for value in layouts[0].values())


def test_randomization_changes_neither_layouts_nor_other_settings():
    plain, obs = make_envs()
    varied, same_obs = make_envs(ALL_DEVIATIONS)
    assert np.array_equal(obs, same_obs) and plain.instructions == varied.instructions
    only, _ = make_envs(Randomization(brightness=0.2))
    assert np.array_equal(
        only._backend.expanded_fields["light_diffuse"], varied._backend.expanded_fields["light_diffuse"]
    )
    assert set(only._backend.expanded_fields) == {"light_diffuse"} and not plain._backend.expanded_fields
    for env in (plain, varied, only):
        env.close()


def test_deviations_stay_within_their_limits():
    env, _ = make_envs(ALL_DEVIATIONS)
    model, varied = env.model, env._backend.expanded_fields
    assert 0 < np.abs(varied["cam_pos"] - model.cam_pos).max() <= 0.03
    assert 0 < np.abs(varied["geom_rgba"] - model.geom_rgba)[..., :3].max() <= 0.1 + 1e-6
    assert np.array_equal(varied["geom_rgba"][..., 3], np.tile(model.geom_rgba[:, 3], (4, 1)))
    ratio = varied["body_mass"][:, model.body("red").id] / model.body("red").mass
    assert (ratio >= 1 / 1.5).all() and (ratio <= 1.5).all()
    others = [i for i in range(model.nbody) if model.body(i).name not in ("red", "blue")]
    assert np.array_equal(varied["body_mass"][:, others], np.tile(model.body_mass[others], (4, 1)))
    assert set(env._action_delay.delay.tolist()) <= {0, 1, 2}
    env.close()


def test_expert_succeeds_under_randomization():
    """Latency is excluded: the expert aims from the commanded tool position and would repeat delayed commands."""
    no_latency = replace(ALL_DEVIATIONS, latency=0)
    env = TabletopVecEnv("lift_cube", 32, autoreset_mode=AutoresetMode.DISABLED, randomize=no_latency)
    env.reset(seed=3)
    policy = ScriptedPolicy(env, seed=0)
    policy.reset(np.arange(32))
    for _ in range(env.max_episode_steps):
        *_, info = env.step(policy.act())
    assert info["success"].mean() >= 0.9
    env.close()


def test_action_takes_effect_after_its_delay():
    action_delay = ActionDelay(3, 2, max_delay=2)
    action_delay.delay[:] = [0, 1, 2]
    action_delay.reset(np.arange(3))
    effective = np.array([action_delay.push(np.full((3, 2), float(t)))[:, 0] for t in range(1, 5)])
    assert effective.T.tolist() == [[1, 2, 3, 4], [0, 1, 2, 3], [0, 0, 1, 2]]
    action_delay.reset(np.array([1]))
    assert action_delay.push(np.full((3, 2), 9.0)).tolist() == [[9, 9], [0, -1], [3, 3]]


def test_negative_deviation_is_rejected():
    with pytest.raises(SimError, match=r"randomize.friction must be >= 0, got -0.1"):
        Randomization(friction=-0.1)
