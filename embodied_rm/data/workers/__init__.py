"""Child processes that read user files, so that a damaged file can only crash the child."""
