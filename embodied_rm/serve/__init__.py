"""The reward service: a reward model for other people's environments, in their own Python, on their own machine."""
