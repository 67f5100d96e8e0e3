"""Commands of the command line, run in processes of their own as a user would run them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CLI_COMMAND = [sys.executable, "-m", "embodied_rm"]


def run_once(folder: Path, command_args: Sequence[str]) -> Path:
    """Run or resume a command in a run folder unless it is done; return the folder."""
    if not (folder / "metrics.json").exists():
        exit_code = subprocess.run([*CLI_COMMAND, *command_args, f"out={folder}", "resume=true"]).returncode
        if exit_code:
            raise SystemExit(exit_code)
    return folder
