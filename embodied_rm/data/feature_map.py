"""Mapping from stored views and columns to the names used here, for third-party datasets."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from embodied_rm.data.names import MAX_FPS, MIN_FPS, check_name, is_frame_rate
from embodied_rm.data.orientation import check_orientations
from embodied_rm.errors import DataError, UserError, unknown_name_message


@dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """Selects stored views and columns, and renames views."""

    views: dict[str, str] = field(default_factory=dict)
    """Stored view -> new name; other views are dropped. Empty: all views under their stored names."""
    state: tuple[str, ...] = ()  # Stored columns that are concatenated to the state. Empty: the default of the format.
    action: tuple[str, ...] = ()
    """Stored columns that are concatenated to the action. Empty: the default of the format."""
    fps: float | None = None  # frame rate (Hz) of files that store none
    orientation: dict[str, str] = field(default_factory=dict)
    """View, by its new name -> how its images are turned: see `orientation.ORIENTATIONS`."""
    max_drift_s: float | None = None
    """Largest deviation of times in a LeRobot dataset from its frame rate (s); other episodes are excluded. None: any.
    """

    def __post_init__(self) -> None:
        names = [*self.views, *self.views.values(), *self.state, *self.action]
        if not all(isinstance(name, str) and name for name in names):
            raise UserError(f"views and columns are named by texts, got {self.views}, {self.state}, {self.action}")
        check_orientations(self.orientation)
        if self.fps is not None and not is_frame_rate(self.fps):
            raise UserError(f"fps must be from {MIN_FPS} to {MAX_FPS:g}, got {self.fps}")
        if self.max_drift_s is not None and not self.max_drift_s >= 0:
            raise UserError(f"max_drift_s must be >= 0, got {self.max_drift_s}")

    def resolve_views(self, stored: Collection[str], source: object) -> dict[str, str]:
        """Return new name -> stored name; raise `DataError` if a view is not stored, or a new name is bad or twice."""
        for name in self.views.values() or stored:
            check_name(name, f"view of {source}")
        if not self.views:
            return {name: name for name in stored}
        for view in self.views:
            if view not in stored:
                raise DataError(f"{source}: {unknown_name_message(view, stored, 'view')}")
        if len(set(self.views.values())) < len(self.views):
            raise DataError(f"{source}: two views cannot get one name: {dict(self.views)}")
        return {name: view for view, name in self.views.items()}


def resolve_columns(requested: tuple[str, ...], default: str, stored: Iterable[str], source: object) -> tuple[str, ...]:
    """Return the stored columns of a state or an action: the requested ones, else the default if it is stored."""
    available = set(stored)
    for column in requested:
        if column not in available:
            raise DataError(f"{source}: {unknown_name_message(column, available, 'column')}")
    return requested or ((default,) if default in available else ())


DEFAULT_FEATURE_MAP = FeatureMap()
