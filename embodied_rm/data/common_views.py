"""The views that all episodes of a dataset have; a view that some lack is left out and reported."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from embodied_rm.data.issues import DataIssue, list_names
from embodied_rm.errors import DataError

NamedViews = Sequence[tuple[str, Collection[str]]]
"""The name of each recording and its views; two HDF5 files can have one name."""


def common_views(recordings: NamedViews) -> tuple[str, ...]:
    """Return the views that all recordings have, in the order of the first one."""
    (name, first), *others = recordings
    common = tuple(view for view in first if all(view in views for _, views in others))
    if not common:
        raise DataError(f"{name} and the other recordings have no view in common; it has {', '.join(first)}")
    return common


def find_left_out_views(path: Path, recordings: NamedViews) -> Iterator[DataIssue]:
    """Yield an issue per view that some recordings lack, which excludes none of them; `path` is that of the dataset."""
    common = common_views(recordings)
    for view in dict.fromkeys(view for _, views in recordings for view in views if view not in common):
        missing = [name for name, views in recordings if view not in views]
        message = f"the view {view} is left out: it is missing in {list_names(missing)}"
        yield DataIssue(file=path, message=message, episodes=())
