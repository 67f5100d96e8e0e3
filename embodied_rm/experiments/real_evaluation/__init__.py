"""Reward models on recordings of real robots: the sets, the cases, the baselines and the table."""
