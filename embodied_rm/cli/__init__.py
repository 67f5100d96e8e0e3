"""The composition root: the console script, its commands and everything that prints."""

import time

STARTED = time.monotonic()
"""When this program started, for the times that it reports."""
