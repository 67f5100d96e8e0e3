"""Rewards from predictions: potential-based shaping, the episode reward and the reward rules of the literature."""
