"""The speed benchmark compares equal environments, and its ratios are correct."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.bench.rollouts import ImageEnv, RolloutConfig, RolloutSpeed, time_gymnasium_async, time_tabletop_env
from embodied_sim.bench.speed import run_in_subprocess, speed_ratios
from embodied_sim.vec_env import TabletopVecEnv

ROLLOUT = RolloutConfig(num_envs=2, views=("front", "wrist"), image_size=48)


def compare_envs() -> tuple[bool, float]:
    """Return whether both environments end in the same state, and the PSNR (dB) of their images."""
    env = TabletopVecEnv(
        "lift_cube", 1, views=ROLLOUT.views, image_size=ROLLOUT.image_size, autoreset_mode=AutoresetMode.DISABLED
    )
    single = ImageEnv(ROLLOUT, fast_render=True)
    env.reset(seed=3), single.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32):
        obs, *_ = env.step(action[None])
        single_obs, *_ = single.step(action)
    error = single_obs["images"].astype(float) - env.render_views()[0]
    env.close(), single.close()
    return np.array_equal(single_obs["state"], obs[0]), 10 * np.log10(255**2 / np.square(error).mean())


def test_compared_environments_are_equal():
    same, psnr = run_in_subprocess(compare_envs)
    assert same and psnr > 35


@pytest.mark.parametrize(
    ("measure", "options"), [(time_tabletop_env, {}), (time_gymnasium_async, {"fast_render": True})]
)
def test_measurement_runs_in_its_own_process(measure, options):
    speed = run_in_subprocess(measure, ROLLOUT, 2, **options)
    assert speed.env_steps_per_s > 0 and speed.memory_mib > 50


def test_ratios_use_medians():
    speeds = [("ours", 10.0), ("other", 2.0), ("ours", 1000.0), ("other", 4.0), ("ours", 20.0), ("other", 5.0)]
    ratios = speed_ratios([(name, RolloutSpeed(env_steps_per_s=rate, memory_mib=1)) for name, rate in speeds])
    assert ratios == {"ours_env_steps_per_s": 20.0, "other_env_steps_per_s": 4.0, "ours_to_other": 5.0}
