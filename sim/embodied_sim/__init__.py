"""MuJoCo manipulation tasks as Gymnasium environments. Never imports `embodied_rm`.

`import embodied_sim` registers every task with Gymnasium, see `gym_envs.py`.
"""

from importlib.util import find_spec

if find_spec("mujoco") is not None:  # the extra `sim`; without it, configs and datasets of the simulator are still read
    from embodied_sim.gym_envs import register_envs

    register_envs()
