"""MuJoCo manipulation tasks as Gymnasium environments. Never imports `embodied_rm`.

`import sim` makes every task known to `gymnasium.make` and `gymnasium.make_vec`, see `gym_envs.py`.
"""

from embodied_sim.gym_envs import register_envs

register_envs()
