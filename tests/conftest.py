"""For all tests: threads of torch wait without spinning, as under the command line; read when torch is imported."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
