"""Learning in the predictions of a world model: no environment step is taken."""
