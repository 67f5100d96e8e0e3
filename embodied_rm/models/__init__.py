"""Reward models: the contract (`base`), the trained network, and the baselines every table shows."""
