"""What a command is: a typed config and the function that does the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from embodied_rm.run_folder import Reporter, RunFolder

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Its name, help and defaults are `configs/<name>.yaml`; only its types and its work are here."""

    schema: type
    """Frozen dataclass of every key; what the composed config is turned into."""
    main: Callable[[Any, RunFolder, Reporter], None]
    """Does the work: (config, run, reporter)."""
    writes_run_folder: bool = True
    """Whether it writes a run folder; False for commands that only show something."""
    resume_ignored_keys: tuple[str, ...] = ()
    """Keys that change how the work is done and not what comes out: a run may be resumed with other values of them."""
    distributed: bool = False
    """Whether processes that torchrun starts share the work."""


def to_base_config(config: Any, base: type[T]) -> T:
    """The part of a command's config that a verb takes: a plain `kind` from an instance of a subclass of it."""
    return base(**{field.name: getattr(config, field.name) for field in fields(base)})  # type: ignore[arg-type]
