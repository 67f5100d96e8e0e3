"""Select the views of a source that a model uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import InputSpec
from embodied_rm.types import Episode


def read_episodes_for(
    input_spec: InputSpec, source: EpisodeSource, rows: Sequence[int] | None = None, frame_stride: int = 1
) -> Iterator[Episode]:
    """Read episodes with the views and image size of a model.

    Args:
        input_spec: Inputs of the model.
        source: The recordings.
        rows: Indices of the episodes, default all.
        frame_stride: Every `frame_stride`-th frame is read, and the last one.

    Raises:
        UserError: If the source has none of the model's views.
    """
    views = select_views(input_spec, source)
    for row in range(len(source)) if rows is None else rows:
        yield source.episode(row, views=views, size=input_spec.image_size, stride=frame_stride)


def select_views(input_spec: InputSpec, source: EpisodeSource) -> list[str]:
    """Return the views of a source that the model uses.

    Raises:
        UserError: If there are none.
    """
    if input_spec.views is None:
        return list(source.views)
    views = [name for name in source.views if name in input_spec.views]
    if not views:
        raise UserError(
            f"the model uses the views {', '.join(input_spec.views)}; the recording has {', '.join(source.views)}"
        )
    return views
