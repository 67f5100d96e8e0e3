"""`python -m embodied_rm`: the command line, for launchers that start a module (torchrun)."""

import sys

from embodied_rm.cli.main import main

sys.exit(main())
