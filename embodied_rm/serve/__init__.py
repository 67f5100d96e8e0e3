"""Reward service: serves a reward model to environments in other processes and on other machines."""
