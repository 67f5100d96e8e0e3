"""A divergence can be dumped and reproduced."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.divergence import read_divergence, write_divergence
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv


def step_without_action(env):
    return env.step(np.zeros((env.num_envs, 4), np.float32))


def test_divergence_is_dumped_once_and_can_be_restored(tmp_path):
    env = TabletopVecEnv("lift_cube", 3, autoreset_mode=AutoresetMode.DISABLED, divergence_dump_dir=tmp_path)
    env.reset(seed=0)
    step_without_action(env)
    env._backend.qvel[1, -6:-3] = 8e4
    *_, info = step_without_action(env)
    step_without_action(env)
    assert info["diverged"].tolist() == [False, True, False]
    (path,) = tmp_path.iterdir()
    divergence = read_divergence(path)
    assert divergence.task == "lift_cube" and divergence.robot == "panda" and divergence.reason
    env.reset(seed=1)
    divergence.apply_to(env._backend, 2)
    assert np.array_equal(env._backend.qpos[2], divergence.qpos)
    env.close()


def test_controls_and_model_fields_are_restored(tmp_path):
    """With its own friction and controls, the same step from the file ends in the bit-identical state."""
    env = TabletopVecEnv("lift_cube", 2, autoreset_mode=AutoresetMode.DISABLED, divergence_dump_dir=tmp_path)
    env.reset(seed=0)
    env._backend.expand_field("geom_friction")[0] *= 0.1
    env.reset(seed=0)
    env.step(np.ones((2, 4), np.float32))
    divergence = read_divergence(
        write_divergence(tmp_path, env._backend, 0, env._backend.ctrl[0], "test", "lift_cube", "panda")
    )
    env._backend.set_state(np.array([0]), np.array([divergence.qpos]), np.array([divergence.qvel]))
    env._backend.ctrl[0] = divergence.ctrl
    divergence.apply_to(env._backend, 1)
    env._backend.step(5)
    assert np.array_equal(env._backend.qpos[0], env._backend.qpos[1])
    env.close()


def test_other_files_are_rejected(tmp_path):
    for name, text in (("a.json", "{"), ("b.json", '{"format": "x"}'), ("c.json", "[]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(SimError, match=rf"{name}: not a divergence dump"):
            read_divergence(tmp_path / name)
    with pytest.raises(SimError, match=r"gone.json: cannot be read"):
        read_divergence(tmp_path / "gone.json")
