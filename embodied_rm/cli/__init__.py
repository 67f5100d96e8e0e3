"""The composition root: the console script, its commands and everything that prints."""

import time

PROCESS_START_S = time.monotonic()
"""When this program started, for the times that it reports."""
