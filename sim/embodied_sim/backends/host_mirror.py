"""NumPy mirrors of Warp arrays."""

import numpy as np
import warp

from embodied_sim.backends.backend import Array, Rows


class HostMirror:
    """Float64 host copy of a float32 device array; tracks the last synchronized values."""

    def __init__(self, source: warp.array, shape: tuple[int, ...]) -> None:
        """Copy `source`. `shape`: shape on the host, e.g. [N, nsite, 9] where Warp has N x nsite matrices."""
        self._source = source
        self._device_shape = source.numpy().shape
        self._device_copy: Array = np.empty(shape)
        self.host: Array = np.empty(shape)
        """Live array: its memory stays the same."""
        self.pull()

    def pull(self) -> None:
        """Copy the device values to the host."""
        if self.host.size:  # Warp allocates no memory for an empty array
            self.host[...] = self._device_copy[...] = self._source.numpy().reshape(self.host.shape)

    def push(self) -> bool:
        """Copy host changes since the last synchronization to the device; return whether there were any.

        Without host changes the device array is not touched: other code may have written to it.
        """
        if np.array_equal(self.host, self._device_copy, equal_nan=True):
            return False
        self._device_copy[...] = self.host
        # Values beyond the range of float32 become infinite; the divergence check detects them.
        with np.errstate(over="ignore"):
            self._source.assign(self.host.astype(np.float32).reshape(self._device_shape))
        return True


class LastGoodState:
    """Last valid state of every world."""

    def __init__(self, mirrors: list[HostMirror]) -> None:
        self._mirrors = mirrors
        self._saved = [mirror.host.copy() for mirror in mirrors]

    def save(self, rows: Rows | slice) -> None:
        """Store the current state of the worlds `rows` as valid."""
        for mirror, saved in zip(self._mirrors, self._saved, strict=True):
            saved[rows] = mirror.host[rows]

    def restore(self, rows: Rows) -> None:
        """Write the last valid state of the worlds `rows` into the mirrors."""
        for mirror, saved in zip(self._mirrors, self._saved, strict=True):
            mirror.host[rows] = saved[rows]
