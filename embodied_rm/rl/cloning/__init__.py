"""Behavior cloning, plain and reward-aligned."""
