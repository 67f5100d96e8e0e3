"""For all tests: threads of torch wait without spinning, as under the command line; read when torch is imported."""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "2000")
