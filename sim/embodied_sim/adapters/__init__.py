"""Vector environments as reinforcement learning libraries want them, one library a file; each needs its library.

They take any `gymnasium.vector.VectorEnv` with SAME_STEP autoreset and dense `final_obs`: `TabletopVecEnv`, or one with
a learned reward around it.
"""
