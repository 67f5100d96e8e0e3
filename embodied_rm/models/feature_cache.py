"""What a frozen tower sees in the images of recordings, kept on disk: looked at once, then only read.

A video's maps are stored under the digest of its pixels, in a folder under the digest of the tower: other weights or
images never meet the wrong maps. A file gets its name when it is whole, so that a killed run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embodied_rm.atomic_file import atomic_file
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.encoders import Encoder
from embodied_rm.types import Frames

FeatureMaps = npt.NDArray[np.float16]
IMAGES_PER_BLOCK = 16
"""Images that are looked at together: large towers fill the memory."""
HEADER_LENGTH_BYTES = 8
"""Bytes that say how long a safetensors header is."""


class FeatureCache:
    """Maps of videos by one frozen tower, memory-mapped: [T, C, h, w], half precision."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        """Raises `UserError` for a tower that learns: it sees otherwise after every update."""
        if encoder.config.trainable:
            raise UserError("cache keeps what a tower sees that does not learn, and that of this model does")
        self._encoder, self._feature_shape = encoder, encoder.feature_shape()
        self.folder = folder / tower_digest(encoder)[:16]
        self.folder.mkdir(parents=True, exist_ok=True)

    def get_views(self, views: Mapping[str, Frames]) -> dict[str, CachedFeatures]:
        """View -> the maps of its video."""
        return {name: self.get(frames) for name, frames in views.items()}

    def get(self, frames: Frames) -> CachedFeatures:
        """The maps of a video uint8 [T, H, W, 3], from the disk if they are there. Raises `DataError` for a file that
        is not what was put away."""
        path = self.folder / f"{hashlib.sha256(np.ascontiguousarray(frames).data).hexdigest()}.safetensors"
        shape = (len(frames), *self._feature_shape)
        if not path.exists():
            self._encode_to_file(frames, path, shape)
        return CachedFeatures(path, shape)

    @torch.no_grad()
    def _encode_to_file(self, frames: Frames, path: Path, shape: tuple[int, ...]) -> None:
        """Look at a video block by block, and put away what is seen."""
        header = safetensors_header(shape)
        with atomic_file(path) as partial, partial.open("wb") as stream:
            stream.write(header)
            for start in range(0, len(frames), IMAGES_PER_BLOCK):
                pixels = torch.from_numpy(np.ascontiguousarray(frames[start : start + IMAGES_PER_BLOCK]))
                features = self._encoder.encode_image(self._encoder.preprocess(pixels)).contiguous().half().numpy()
                if not np.isfinite(features).all():
                    raise DataError(f"{path.parent}: the tower's maps are too large for half precision")
                stream.write(features.tobytes())


def tower_digest(encoder: Encoder) -> str:
    """SHA-256 of all that decides what the image tower sees."""
    digest = hashlib.sha256(json.dumps(asdict(encoder.config), sort_keys=True, default=str).encode())
    for name, tensor in sorted(encoder.clip.visual.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def safetensors_header(shape: tuple[int, ...]) -> bytes:
    """The beginning of a safetensors file that holds one tensor of half precision, "maps"."""
    size = 2 * int(np.prod(shape))
    header = json.dumps({"maps": {"dtype": "F16", "shape": list(shape), "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % HEADER_LENGTH_BYTES)
    return len(header).to_bytes(HEADER_LENGTH_BYTES, "little") + header


class CachedFeatures:
    """The maps in a file, [T, C, h, w]: mapped into memory while some of them are taken, and no longer, since a dataset
    has more videos than a process may have open."""

    dtype = np.dtype(np.float16)

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        """Raises `DataError` when the file does not hold maps of that shape."""
        self.path, self.shape, self._header = path, shape, safetensors_header(shape)
        with path.open("rb") as stream:
            stored_header = stream.read(len(self._header))
        if stored_header != self._header or path.stat().st_size != len(self._header) + 2 * int(np.prod(shape)):
            raise DataError(f"{path}: does not hold maps {list(shape)}; delete it, and they are made anew")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> FeatureMaps:
        return np.array(np.memmap(self.path, np.float16, "r", len(self._header), self.shape)[rows])
