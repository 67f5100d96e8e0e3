"""A pretrained image encoder whose feature maps are compared cell by cell: frozen, in ONNX Runtime if installed."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.atomic_file import write_atomic
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.encoders import resize_frames
from embodied_rm.models.onnx_export import export_module
from embodied_rm.models.onnx_net import load_graph
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE0, INSTALL_HINT, tensors_sha256
from embodied_rm.threads import count_cores
from embodied_rm.types import Frames

NUM_LEVELS = 3  # last feature maps of the encoder that are used
FINE_GRID, COARSE_GRID = 17, 4  # largest side, in cells, of a map and of a pooled map
IMAGES_PER_CALL = 2  # images of one call of ONNX Runtime: more of them leave the processor's caches
CACHE_DIR_VARIABLE, CACHE_DIR = "XDG_CACHE_HOME", "~/.cache"  # folder of files that can be computed again
DIGEST_BYTES = 32
MAX_NAME_CHARS = 200  # of an encoder, which is part of names of files
RunFn = Callable[[Tensor], tuple[Tensor, ...]]  # images uint8 [M, H, W, 3] -> maps of the levels
RUNTIME_MODULES = ("onnx", "onnxruntime", "onnxscript")


class CellMaps(nn.Module):
    """Images uint8 [M, H, W, 3] at the encoder's size -> maps [M, C, h, w] of its last levels, sides up to 17 cells."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", 255 * torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", 255 * torch.tensor(std).view(3, 1, 1))

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Compute the maps, from the finest to the coarsest."""
        pixels = (images.permute(0, 3, 1, 2).float() - self.mean) / self.std
        maps = self.model.forward_intermediates(pixels, indices=NUM_LEVELS, intermediates_only=True)  # type: ignore[operator]
        return tuple(
            nn.functional.avg_pool2d(level, -(-level.shape[-1] // FINE_GRID)) if level.shape[-1] > FINE_GRID else level
            for level in maps
        )


class FrozenEncoder:
    """Unit vectors per cell of images, from a pretrained encoder that is never trained.

    On a CPU with ONNX Runtime it is two and a half times as fast as torch, and equal to it within 1e-4.
    """

    def __init__(self, name: str = EFFICIENTNET_LITE0.name, *, use_onnx: bool | None = None) -> None:
        """
        Args:
            name: As for `load_timm`.
            use_onnx: Whether ONNX Runtime computes the maps. None: if it is installed.

        Raises:
            CheckpointError: When the weights are absent or damaged.
            UserError: For an unknown name.
        """
        from embodied_rm.models.timm_encoder import load_timm  # imports timm, which takes seconds

        description, model = load_timm(name)
        self.name, self.image_size = name, description.image_size
        self.weights_sha256 = tensors_sha256(model.state_dict())
        self._maps = CellMaps(model, description.mean, description.std).eval()
        has_runtime = all(find_spec(module) is not None for module in RUNTIME_MODULES)
        self.graph = self._open_graph() if (has_runtime if use_onnx is None else use_onnx) else None
        """The serialized ONNX graph that computes the cells; None: torch computes them."""
        self._run: RunFn = self._run_torch
        if self.graph is not None:
            self._run = load_graph(self.graph, "encoder", output_names())
        self._executor = ThreadPoolExecutor(count_cores(), thread_name_prefix="encoder")

    @cached_property
    def level_channels(self) -> tuple[int, ...]:
        """Channels of each level, from the finest to the coarsest."""
        return tuple(level.shape[2] for level in self.encode(np.zeros((1, *self.image_size, 3), np.uint8)))

    def encode(self, images: Frames) -> list[Tensor]:
        """Encode images uint8 [M, H, W, 3] of any size, in as many threads as torch has.

        Returns:
            Per level, cells float32 [M, h * w, C] of unit length.
        """
        pixels = torch.from_numpy(np.ascontiguousarray(resize_frames(images, self.image_size)))
        chunks = pixels.split(IMAGES_PER_CALL)
        share = -(-len(chunks) // torch.get_num_threads())
        shares = [chunks[start : start + share] for start in range(0, len(chunks), share)]
        levels = zip(*chain.from_iterable(self._executor.map(self._run_all, shares)), strict=True)
        return [nn.functional.normalize(torch.cat(level).flatten(2).transpose(1, 2), dim=2) for level in levels]

    def _run_all(self, chunks: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        return [self._run(chunk) for chunk in chunks]

    def _run_torch(self, images: Tensor) -> tuple[Tensor, ...]:
        with torch.inference_mode():
            return tuple(self._maps(images))

    def with_graph(self, graph: bytes, run: RunFn) -> FrozenEncoder:
        """Return an encoder of the same images whose maps another graph computes, which `run` evaluates."""
        encoder = copy.copy(self)
        encoder.graph, encoder._run = graph, run
        return encoder

    def _open_graph(self) -> bytes:
        """Return the graph of these weights, from the cache folder or exported into it."""
        key = f"{self.weights_sha256} {self.image_size} {torch.__version__} {NUM_LEVELS} {FINE_GRID}"
        path = graph_cache_dir() / f"{hashlib.sha256(key.encode()).hexdigest()}.onnx"
        graph = read_graph(path)
        if graph is None:
            images = torch.zeros(2, *self.image_size, 3, dtype=torch.uint8)
            graph = export_module(self._maps, {"images": images}, output_names())
            write_graph(path, graph)
        return graph


class CachingEncoder(FrozenEncoder):
    """A frozen encoder that encodes each image once, and keeps its cells by the content of the image.

    The cells are kept in half precision, 75 KB per image of `efficientnet_lite0`.
    """

    def __init__(self, encoder: FrozenEncoder) -> None:
        """
        Args:
            encoder: The encoder of new images.
        """
        self.name, self.image_size, self.weights_sha256 = encoder.name, encoder.image_size, encoder.weights_sha256
        self.graph = encoder.graph
        self._encoder = encoder
        self._cells: dict[bytes, list[Tensor]] = {}

    def encode(self, images: Frames) -> list[Tensor]:
        """As `FrozenEncoder.encode`."""
        keys = [hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest() for image in images]
        fresh = {key: i for i, key in reversed(list(enumerate(keys))) if key not in self._cells}
        if fresh:
            levels = self._encoder.encode(images[list(fresh.values())])
            for row, key in enumerate(fresh):
                self._cells[key] = [level[row].half() for level in levels]
        return [torch.stack(level).float() for level in zip(*(self._cells[key] for key in keys), strict=True)]


def output_names() -> tuple[str, ...]:
    """Names of the graph's outputs."""
    return tuple(f"level_{level}" for level in range(NUM_LEVELS))


def graph_cache_dir() -> Path:
    """Return the folder of exported graphs; `UserError` if the account has no home."""
    folder = os.environ.get(CACHE_DIR_VARIABLE) or CACHE_DIR
    try:
        return Path(folder).expanduser() / "embodied_rm" / "encoders"
    except RuntimeError:
        raise UserError(f"{folder}: there is no home folder; set HOME, or {CACHE_DIR_VARIABLE} to a folder") from None


def read_graph(path: Path) -> bytes | None:
    """Return a cached graph; None if there is none, or its digest differs."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, graph = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    return graph if hashlib.sha256(graph).digest() == digest else None


def write_graph(path: Path, graph: bytes) -> None:
    """Cache a graph, after its digest; a folder that cannot be written costs the next process an export."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, hashlib.sha256(graph).digest() + graph)
    except OSError:
        return


def check_same_weights(folder: Path | str, name: str, found: str, expected: str) -> None:
    """Raise `CheckpointError` unless an encoder has the weights, by their SHA-256, that a checkpoint was trained on."""
    if found != expected:
        raise CheckpointError(f"{folder}: it was trained on other weights of {name} than those that are installed")


@cache
def open_frozen_encoder(name: str = EFFICIENTNET_LITE0.name) -> FrozenEncoder:
    """Return the encoder of a name, loaded once per process.

    Raises:
        CheckpointError: When the weights are absent or damaged; says what to install.
        UserError: For an unknown name.
    """
    if len(name) > MAX_NAME_CHARS:
        raise CheckpointError(f"encoder={name[:60]}... is no name of an encoder: it has {len(name)} letters")
    try:
        return FrozenEncoder(name)
    except ModuleNotFoundError as error:
        raise CheckpointError(f"encoder={name} needs {error.name}: {INSTALL_HINT}") from error
