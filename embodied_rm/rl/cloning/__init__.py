"""Behaviour cloning, plain and reward-aligned."""
