"""Labeling schemes: pure functions from annotated episodes to training targets, one file per scheme."""
