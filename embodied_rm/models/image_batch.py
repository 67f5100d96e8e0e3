"""The images of many frames as one batch: what a network reads from `Views`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.types import Frames, IntArray


@dataclass(frozen=True, kw_only=True)
class ImageBatch:
    """P images of N frames: image i is `frames[batch_index[i], column[i]]` and shows the view `view_index[i]`."""

    frames: Frames | Tensor  # uint8 [N, V, H, W, 3]
    batch_index: IntArray  # [P], ascending: the row of `frames` that each image belongs to
    column: IntArray  # [P]: the column of `frames`; each pair of row and column occurs once
    view_index: IntArray  # [P]: index into the views of the network

    def __len__(self) -> int:
        return len(self.batch_index)

    def __getitem__(self, index: slice) -> ImageBatch:
        """Select a slice of the images; `frames` stays the same."""
        columns = {name: getattr(self, name)[index] for name in ("batch_index", "column", "view_index")}
        return replace(self, **columns)

    def select(self, timesteps: slice) -> ImageBatch:
        """Select the images of the given rows, numbered from 0."""
        subset = self[slice(*np.searchsorted(self.batch_index, (timesteps.start, timesteps.stop)))]
        return replace(subset, frames=self.frames[timesteps], batch_index=subset.batch_index - timesteps.start)

    def pixels(self) -> Tensor:
        """uint8 [P, H, W, 3], on the device of `frames`."""
        if isinstance(self.frames, np.ndarray):
            return torch.from_numpy(self.frames[self.batch_index, self.column])
        if len(self) == self.frames.shape[0] * self.frames.shape[1]:
            return self.frames.flatten(0, 1)
        index = torch.from_numpy(self.batch_index * self.frames.shape[1] + self.column).to(self.frames.device)
        # On the CPU six times as fast as frames[batch_index, column].
        return self.frames.flatten(0, 1).index_select(0, index)

    def indices(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """`view_index` and `batch_index` as tensors."""
        return torch.from_numpy(self.view_index).to(device), torch.from_numpy(self.batch_index).to(device)
