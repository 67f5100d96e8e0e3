"""MuJoCo manipulation tasks as Gymnasium environments. Never imports `embodied_rm`.

`import embodied_sim` registers every task with Gymnasium, see `gym_envs.py`.
"""

from embodied_sim.gym_envs import register_envs

register_envs()
