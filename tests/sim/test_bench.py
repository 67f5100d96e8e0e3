"""The benchmark compares like with like, and its ratios are ratios."""

import os

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from sim.bench.compare import alone, ratios
from sim.bench.rollouts import Pictured, Rollout, Speed, gymnasium_async, ours
from sim.render.opengl import working_platform
from sim.vec_env import TabletopVecEnv

ROLLOUT = Rollout(num_envs=2, views=("front", "wrist"), image_size=48)


def test_the_other_environment_shows_and_does_the_same():
    os.environ["MUJOCO_GL"] = working_platform() or "egl"
    env = TabletopVecEnv(
        "lift_cube", 1, views=ROLLOUT.views, image_size=ROLLOUT.image_size, autoreset_mode=AutoresetMode.DISABLED
    )
    single = Pictured(ROLLOUT, lean=True)
    obs, _ = env.reset(seed=3)
    theirs, _ = single.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(5):
        action = rng.uniform(-1, 1, 4).astype(np.float32)
        obs, *_ = env.step(action[None])
        theirs, *_ = single.step(action)
    assert np.array_equal(theirs["state"], obs[0])
    error = theirs["pictures"].astype(float) - env.render_views()[0]
    assert 10 * np.log10(255**2 / np.square(error).mean()) > 35, "PSNR, dB"
    env.close(), single.close()


@pytest.mark.parametrize(("measure", "options"), [(ours, {}), (gymnasium_async, {"lean": True})])
def test_a_measurement_runs_in_a_process_of_its_own(measure, options):
    speed = alone(measure, ROLLOUT, 2, **options)
    assert speed.env_steps_per_s > 0 and speed.memory_mib > 50


def test_ratios_are_of_medians():
    speeds = [("ours", 10.0), ("other", 2.0), ("ours", 1000.0), ("other", 4.0), ("ours", 20.0), ("other", 5.0)]
    told = ratios([(name, Speed(env_steps_per_s=rate, memory_mib=1)) for name, rate in speeds])
    assert told == {"ours_env_steps_per_s": 20.0, "other_env_steps_per_s": 4.0, "ours_to_other": 5.0}
