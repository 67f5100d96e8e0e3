"""Commands of the command line, run in processes of their own as a user would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CLI_COMMAND = [sys.executable, "-m", "embodied_rm"]


def run_once(folder: Path, command_args: Sequence[str]) -> Path:
    """Run or resume a command in a run folder unless it is done; return the folder.

    Raises:
        SystemExit: When the command fails, or the folder is of a run with other arguments.
    """
    arguments_file, arguments = folder.with_name(f"{folder.name}.arguments.json"), list(command_args)
    if arguments_file.exists() and json.loads(arguments_file.read_text()) != arguments:
        raise SystemExit(f"{folder} is of a run with other arguments, see {arguments_file}: use another --out")
    arguments_file.parent.mkdir(parents=True, exist_ok=True)
    arguments_file.write_text(json.dumps(arguments))
    if not (folder / "metrics.json").exists():
        exit_code = subprocess.run([*CLI_COMMAND, *command_args, f"out={folder}", "resume=true"]).returncode
        if exit_code:
            raise SystemExit(exit_code)
    return folder
