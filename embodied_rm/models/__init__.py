"""Reward models: the contract (`reward_model`), the trained network (`progress_net`) and baselines."""
