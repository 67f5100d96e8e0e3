"""Supervision schemes: pure functions from annotated episodes to targets, one file a scheme."""
