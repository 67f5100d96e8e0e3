"""A person acts in an environment, by keyboard or gamepad on a local page."""
