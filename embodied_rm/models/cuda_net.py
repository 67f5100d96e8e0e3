"""`CudaNet`: a `ProgressNet` on a GPU in bf16, from images to embeddings as one compiled CUDA graph."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from embodied_rm.models.image_batch import ImageBatch
from embodied_rm.models.progress_net import ProgressNet


class CudaNet(ProgressNet):
    """A `ProgressNet` with the weights of another net, which is not changed.

    One graph is captured for each number of images and rows. Torch compiles at most eight and then warns, so use
    batches of one size. Not yet tested on a GPU.
    """

    def __init__(self, net: ProgressNet, backend: str = "inductor") -> None:
        """Compile the path from images to embeddings with a backend of `torch.compile`."""
        nn.Module.__init__(self)
        self.config, self.net = net.config, net
        self.heads = net.heads
        mode = "reduce-overhead" if backend == "inductor" else None
        self._compiled = torch.compile(self._embed_pixels, backend=backend, dynamic=False, mode=mode)
        self.eval()

    def _embed_text(self, sentences: Sequence[str]) -> Tensor:
        return self.net._embed_text(sentences)

    def _embed_pixels(
        self, pixels: Tensor, view_index: Tensor, batch_index: Tensor, instruction: Tensor, masked_views: Tensor
    ) -> Tensor:
        encoder = self.net.encoder
        return self.net.embed(
            encoder.encode_image(encoder.preprocess(pixels)), view_index, batch_index, instruction, masked_views
        )

    def _embed_images(self, images: ImageBatch, instruction: Tensor, masked_views: Tensor) -> Tensor:
        device = instruction.device
        with torch.autocast(device.type, torch.bfloat16):
            embedding = self._compiled(images.pixels().to(device), *images.indices(device), instruction, masked_views)
        # The next replay of the graph overwrites this output.
        return embedding.to(torch.float32, copy=True)
