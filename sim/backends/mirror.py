"""A Warp array as the live NumPy array that the host works with."""

from __future__ import annotations

import numpy as np
import warp

from sim.backends.base import Array, Rows


class Mirror:
    """A float64 copy of a float32 array on a device, and what was last known to be there."""

    def __init__(self, source: warp.array, shape: tuple[int, ...]) -> None:
        """`shape`: how the host sees it, e.g. [N, nsite, 9] where Warp has N x nsite matrices."""
        self._source = source
        self._inner = source.numpy().shape
        self._there: Array = np.empty(shape)
        self.host: Array = np.empty(shape)
        """Live: its memory stays the same."""
        self.pull()

    def pull(self) -> None:
        """Take over what is on the device."""
        if self.host.size:  # Warp has no memory to show for an empty array
            self.host[...] = self._there[...] = self._source.numpy().reshape(self.host.shape)

    def push(self) -> bool:
        """Bring to the device what the host has written since the last pull or push; whether there was anything.

        What the host has left alone stays as it is on the device, where somebody else may have written to it.
        """
        if np.array_equal(self.host, self._there, equal_nan=True):
            return False
        self._there[...] = self.host
        # float64 beyond the range of float32 becomes infinite: whoever steps the worlds looks for that.
        with np.errstate(over="ignore"):
            self._source.assign(self.host.astype(np.float32).reshape(self._inner))
        return True


class Snapshot:
    """The state of every world at a good moment."""

    def __init__(self, mirrors: list[Mirror]) -> None:
        self._mirrors = mirrors
        self._kept = [mirror.host.copy() for mirror in mirrors]

    def keep(self, rows: Rows | slice) -> None:
        """The worlds `rows` are good as they are now."""
        for mirror, kept in zip(self._mirrors, self._kept, strict=True):
            kept[rows] = mirror.host[rows]

    def put_back(self, rows: Rows) -> None:
        """Write the last good state of the worlds `rows` into the mirrors."""
        for mirror, kept in zip(self._mirrors, self._kept, strict=True):
            mirror.host[rows] = kept[rows]
