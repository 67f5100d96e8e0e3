"""Evaluation of a policy during refinement, and detection of reward hacking."""
