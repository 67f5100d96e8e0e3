"""What a resumed training must have in common with the interrupted one: its settings and its recorded data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from embodied_rm.errors import UserError

DATA_KEY = "data_sha256"


def describe_inputs(settings: Mapping[str, Any], columns: Iterable[Tensor]) -> dict[str, str]:
    """Return the settings as strings, and the SHA-256 of the data under `DATA_KEY`."""
    digest = hashlib.sha256()
    for column in columns:
        digest.update(column.contiguous().cpu().numpy().tobytes())
    return {**{name: str(value) for name, value in settings.items()}, DATA_KEY: digest.hexdigest()}


def check_same_inputs(stored: Mapping[str, Any], inputs: Mapping[str, str], run_dir: Path) -> None:
    """Raise `UserError` if the run in a folder was started with other inputs than these."""
    changed = [name for name, value in inputs.items() if stored.get(name) != value]
    if changed:
        was = ", ".join(f"{name}={stored.get(name)}" for name in changed if name != DATA_KEY)
        other = was or "other episodes, or another policy, reward model or reward"
        raise UserError(f"the run in {run_dir} was started with {other}: name another folder, or delete it")
