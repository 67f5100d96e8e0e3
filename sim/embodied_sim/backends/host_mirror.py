"""A Warp array as the live NumPy array that the host works with."""

from __future__ import annotations

import numpy as np
import warp

from embodied_sim.backends.backend import Array, Rows


class HostMirror:
    """A float64 copy of a float32 array on a device, and what was last known to be there."""

    def __init__(self, source: warp.array, shape: tuple[int, ...]) -> None:
        """`shape`: how the host sees it, e.g. [N, nsite, 9] where Warp has N x nsite matrices."""
        self._source = source
        self._device_shape = source.numpy().shape
        self._device_copy: Array = np.empty(shape)
        self.host: Array = np.empty(shape)
        """Live: its memory stays the same."""
        self.pull()

    def pull(self) -> None:
        """Take over what is on the device."""
        if self.host.size:  # Warp has no memory to show for an empty array
            self.host[...] = self._device_copy[...] = self._source.numpy().reshape(self.host.shape)

    def push(self) -> bool:
        """Bring to the device what the host has written since the last pull or push; whether there was anything.

        What the host has left alone stays as it is on the device, where somebody else may have written to it.
        """
        if np.array_equal(self.host, self._device_copy, equal_nan=True):
            return False
        self._device_copy[...] = self.host
        # float64 beyond the range of float32 becomes infinite: whoever steps the worlds looks for that.
        with np.errstate(over="ignore"):
            self._source.assign(self.host.astype(np.float32).reshape(self._device_shape))
        return True


class LastGoodState:
    """The state of every world at a good moment."""

    def __init__(self, mirrors: list[HostMirror]) -> None:
        self._mirrors = mirrors
        self._saved = [mirror.host.copy() for mirror in mirrors]

    def save(self, rows: Rows | slice) -> None:
        """The worlds `rows` are good as they are now."""
        for mirror, saved in zip(self._mirrors, self._saved, strict=True):
            saved[rows] = mirror.host[rows]

    def restore(self, rows: Rows) -> None:
        """Write the last good state of the worlds `rows` into the mirrors."""
        for mirror, saved in zip(self._mirrors, self._saved, strict=True):
            mirror.host[rows] = saved[rows]
