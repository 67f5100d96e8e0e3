"""A world that broke down can be broken down again."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.divergence import read_divergence, write_divergence
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv


def still(env):
    return env.step(np.zeros((env.num_envs, 4), np.float32))


def test_a_fault_is_written_once_and_happens_again_when_put_back(tmp_path):
    env = TabletopVecEnv("lift_cube", 3, autoreset_mode=AutoresetMode.DISABLED, divergence_dump_dir=tmp_path)
    env.reset(seed=0)
    still(env)
    env._backend.qvel[1, -6:-3] = 8e4
    *_, info = still(env)
    still(env)
    assert info["diverged"].tolist() == [False, True, False]
    (path,) = tmp_path.iterdir()
    fault = read_divergence(path)
    assert fault.task == "lift_cube" and fault.robot == "panda" and fault.reason
    env.reset(seed=1)
    fault.apply_to(env._backend, 2)
    assert np.array_equal(env._backend.qpos[2], fault.qpos)
    env.close()


def test_what_was_commanded_and_how_the_env_differed_come_back(tmp_path):
    """A friction of its own and a command: the same step from the file ends in the same state, bit for bit."""
    env = TabletopVecEnv("lift_cube", 2, autoreset_mode=AutoresetMode.DISABLED, divergence_dump_dir=tmp_path)
    env.reset(seed=0)
    env._backend.expand_field("geom_friction")[0] *= 0.1
    env.reset(seed=0)
    env.step(np.ones((2, 4), np.float32))
    fault = read_divergence(
        write_divergence(tmp_path, env._backend, 0, env._backend.ctrl[0], "test", "lift_cube", "panda")
    )
    env._backend.set_state(np.array([0]), np.array([fault.qpos]), np.array([fault.qvel]))
    env._backend.ctrl[0] = fault.ctrl
    fault.apply_to(env._backend, 1)
    env._backend.step(5)
    assert np.array_equal(env._backend.qpos[0], env._backend.qpos[1])
    env.close()


def test_other_files_are_refused(tmp_path):
    for name, text in (("a.json", "{"), ("b.json", '{"format": "x"}'), ("c.json", "[]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(SimError, match=rf"{name}: not a fault"):
            read_divergence(tmp_path / name)
    with pytest.raises(SimError, match=r"gone.json: cannot be read"):
        read_divergence(tmp_path / "gone.json")
