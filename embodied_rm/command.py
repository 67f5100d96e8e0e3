"""Definition of a command: a typed config and the function that runs it."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from embodied_rm.run_folder import Reporter, RunFolder

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Its name, help and defaults are in `configs/<name>.yaml`."""

    schema: type
    """Frozen dataclass of all keys; the composed config is converted to it."""
    main: Callable[[Any, RunFolder, Reporter], None]
    """Runs the command: (config, run, reporter)."""
    writes_run_folder: bool = True
    """Whether it writes a run folder; False for commands that only display something."""
    resumable: bool = False
    """Whether an interrupted run continues with resume=true."""
    resume_ignored_keys: tuple[str, ...] = ()
    """Keys that do not affect the results: a resumed run may have other values."""
    distributed: bool = False
    """Whether processes started by torchrun share the work."""


def to_base_config(config: Any, base: type[T]) -> T:
    """Convert an instance of a subclass to its base dataclass `base`."""
    return base(**{field.name: getattr(config, field.name) for field in fields(base)})  # type: ignore[arg-type]
