"""What stored views and columns are called here: foreign datasets have names of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from embodied_rm.errors import DataError, UserError, unknown_name_message


@dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """Which stored things are read, and under which names."""

    views: dict[str, str] = field(default_factory=dict)
    """Stored view -> the name it gets here; views that are not mentioned are left out. Empty: all, as they are."""
    state: tuple[str, ...] = ()
    """Stored columns that make up the state, side by side. Empty: what the format calls so."""
    action: tuple[str, ...] = ()
    """The same of the action."""
    fps: float | None = None
    """Frames a second, of files that do not say it."""

    def __post_init__(self) -> None:
        names = [*self.views, *self.views.values(), *self.state, *self.action]
        if not all(isinstance(name, str) and name for name in names):
            raise UserError(f"views and columns are named by texts, got {self.views}, {self.state}, {self.action}")
        if self.fps is not None and not self.fps > 0:
            raise UserError(f"fps must be > 0, got {self.fps}")

    def resolve_views(self, stored: Collection[str], source: object) -> dict[str, str]:
        """Name here -> stored name. Raises `DataError` for a view that is not stored, or a name given twice."""
        if not self.views:
            return {name: name for name in stored}
        for view in self.views:
            if view not in stored:
                raise DataError(f"{source}: {unknown_name_message(view, stored, 'view')}")
        if len(set(self.views.values())) < len(self.views):
            raise DataError(f"{source}: two views cannot get one name: {dict(self.views)}")
        return {name: view for view, name in self.views.items()}


def resolve_columns(requested: tuple[str, ...], default: str, stored: Iterable[str], source: object) -> tuple[str, ...]:
    """The stored columns that make up a state or an action; none where nothing was asked for and there is no usual one.

    Raises `DataError` for a column that is not stored.
    """
    available = set(stored)
    for column in requested:
        if column not in available:
            raise DataError(f"{source}: {unknown_name_message(column, available, 'column')}")
    return requested or ((default,) if default in available else ())


DEFAULT_FEATURE_MAP = FeatureMap()
