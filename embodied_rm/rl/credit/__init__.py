"""Credit assignment for reward rules that need whole rollouts."""
