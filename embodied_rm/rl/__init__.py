"""Reinforcement learning on learned rewards: the vector wrapper, cloning, PPO, refinement."""
