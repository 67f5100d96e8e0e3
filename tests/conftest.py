"""For all tests: threads of torch wait without spinning, as under the command line; beside other workers there is one.

Both are read when torch is imported.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "2000")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
