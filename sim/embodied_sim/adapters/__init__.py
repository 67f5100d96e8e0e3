"""Adapters for reinforcement learning libraries, one per file; each needs its library.

They accept any `gymnasium.vector.VectorEnv` with SAME_STEP autoreset and dense `final_obs`, such as `TabletopVecEnv`
or a wrapper with a learned reward.
"""
