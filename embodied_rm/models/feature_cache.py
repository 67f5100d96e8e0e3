"""A disk cache for the feature maps of a frozen image tower.

The maps of a video are stored under the digest of its pixels, in a folder named after the digest of the tower. Hence
other weights or images never match. A file gets its name once it is complete: a run that was killed resumes there.
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
IMAGES_PER_BLOCK = 16  # images that are encoded in one batch, to bound the memory of large towers
HEADER_LENGTH_BYTES = 8  # bytes at the start of a safetensors file that hold the length of its header

TRAINING_FIELDS = ("text_trainable", "is_pretrained")  # of `EncoderConfig`, on which no map of a frozen tower depends


class FeatureCache:
    """Feature maps of videos by one frozen tower, memory-mapped: [T, C, h, w], half precision."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        """Open the cache in a folder, which several towers may share.

        `UserError` if the tower is trainable: its maps change with every optimizer step.
        """
        if encoder.config.trainable:
            raise UserError("feature_cache_dir needs a frozen image tower, and that of this model is trainable")
        self._encoder = encoder
        self._feature_shape = encoder.feature_shape()
        self.folder = folder / tower_digest(encoder)[:16]
        self.folder.mkdir(parents=True, exist_ok=True)

    def get_views(self, views: Mapping[str, Frames]) -> dict[str, CachedFeatures]:
        """View name -> the feature maps of its video."""
        return {name: self.get(frames) for name, frames in views.items()}

    def get(self, frames: Frames) -> CachedFeatures:
        """Return the maps of a video uint8 [T, H, W, 3], computed if not cached; `DataError` if the file is damaged."""
        path = self.folder / f"{hashlib.sha256(np.ascontiguousarray(frames).data).hexdigest()}.safetensors"
        shape = (len(frames), *self._feature_shape)
        if not path.exists():
            self._encode_to_file(frames, path, shape)
        return CachedFeatures(path, shape)

    @torch.no_grad()
    def _encode_to_file(self, frames: Frames, path: Path, shape: tuple[int, ...]) -> None:
        """Encode a video block by block and write its maps."""
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
    """SHA-256 of the weights and the configuration of the image tower."""
    config = {name: value for name, value in asdict(encoder.config).items() if name not in TRAINING_FIELDS}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(encoder.clip.visual.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def safetensors_header(shape: tuple[int, ...]) -> bytes:
    """Header of a safetensors file with one half-precision tensor, "maps"."""
    size = 2 * int(np.prod(shape))
    header = json.dumps({"maps": {"dtype": "F16", "shape": list(shape), "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % HEADER_LENGTH_BYTES)
    return len(header).to_bytes(HEADER_LENGTH_BYTES, "little") + header


class CachedFeatures:
    """Feature maps in a file, [T, C, h, w], mapped into memory only during access.

    A dataset has more videos than a process may open files.
    """

    dtype = np.dtype(np.float16)

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        """Check the header and the size of the file; `DataError` if they do not match `shape`."""
        self.path = path
        self.shape = shape
        self._header = safetensors_header(shape)
        with path.open("rb") as stream:
            stored_header = stream.read(len(self._header))
        if stored_header != self._header or path.stat().st_size != len(self._header) + 2 * int(np.prod(shape)):
            raise DataError(f"{path}: does not hold maps {list(shape)}; delete it to compute them again")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> FeatureMaps:
        return np.array(np.memmap(self.path, np.float16, "r", len(self._header), self.shape)[rows])
