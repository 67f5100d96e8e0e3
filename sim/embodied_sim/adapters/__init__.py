"""Adapters for other libraries; each needs its library.

Those of rsl-rl and Stable-Baselines3 accept any `gymnasium.vector.VectorEnv` with SAME_STEP autoreset and dense
`final_obs`, such as `TabletopVecEnv` or a wrapper with a learned reward. `lerobot` is a plugin for LeRobot.
"""
