"""Rules that pay a rollout as a whole: who is paid what."""
