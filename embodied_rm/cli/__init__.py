"""The command line: the console script, its commands and everything that prints."""

import time

PROCESS_START_S = time.monotonic()  # time at which this program started, `time.monotonic`, s
