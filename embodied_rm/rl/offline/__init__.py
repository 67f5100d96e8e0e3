"""Learning from recorded transitions: no environment step is taken."""
