"""Off-policy reinforcement learning: every transition, recorded or new, is learned from many times."""
