"""What a command is: a typed config and the function that does the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from embodied_rm.run import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Its name, help and defaults are `configs/<name>.yaml`; only its types and its work are here."""

    schema: type
    """Frozen dataclass of every key; what the composed config is turned into."""
    start: Callable[[Any, RunFolder, Reporter], None]
    """Does the work: (config, run, reporter)."""
    keeps_run: bool = True
    """Whether it writes a run folder; False for commands that only show something."""
