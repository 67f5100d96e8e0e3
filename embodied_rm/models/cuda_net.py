"""`CudaNet`: a `ProgressNet` on a GPU in bf16, from pictures to states as one compiled CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from embodied_rm.models.pictures import Pictures
from embodied_rm.models.progress_net import ProgressNet


class CudaNet(ProgressNet):
    """The contract of `ProgressNet` with the weights of another net, which stays as it is.

    A graph is captured for every number of pictures and rows that is met, of which torch compiles eight and warns; it
    is for batches of one size. No GPU has run it yet.
    """

    def __init__(self, net: ProgressNet, backend: str = "inductor") -> None:
        """`backend`: of torch.compile."""
        nn.Module.__init__(self)
        self.config, self.net = net.config, net
        self.heads = net.heads
        mode = "reduce-overhead" if backend == "inductor" else None
        self._graph = torch.compile(self._from_pixels, backend=backend, dynamic=False, mode=mode)
        self.eval()

    def _vectors(self, sentences: Sequence[str]) -> Tensor:
        return self.net._vectors(sentences)

    def _from_pixels(self, pixels: Tensor, view: Tensor, owner: Tensor, instruction: Tensor, hidden: Tensor) -> Tensor:
        encoder = self.net.encoder
        return self.net.states(encoder.look(encoder.prepare(pixels)), view, owner, instruction, hidden)

    def _seen(self, pictures: Pictures, instruction: Tensor, hidden: Tensor) -> Tensor:
        device = instruction.device
        with torch.autocast(device.type, torch.bfloat16):
            state = self._graph(pictures.pixels().to(device), *pictures.indices(device), instruction, hidden)
        # The next replay of the graph writes where this one wrote.
        return state.to(torch.float32, copy=True)
