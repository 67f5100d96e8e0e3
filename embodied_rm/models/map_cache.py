"""What a frozen tower sees in the pictures of recordings, kept on disk: looked at once, then only read.

A film's maps are stored under the digest of its pixels, in a folder under the digest of the tower: other weights or
pictures never meet the wrong maps. A file gets its name when it is whole, so that a killed run goes on where it was.
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

Maps = npt.NDArray[np.float16]
BLOCK = 16
"""Pictures that are looked at together: large towers fill the memory."""
PREFIX = 8
"""Bytes that say how long a safetensors header is."""


class MapCache:
    """Maps of films by one frozen tower, memory-mapped: [T, C, h, w], half precision."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        """Raises `UserError` for a tower that learns: it sees otherwise after every update."""
        if encoder.config.trained:
            raise UserError("cache keeps what a tower sees that does not learn, and that of this model does")
        self._encoder, self._shape = encoder, encoder.map_shape()
        self.folder = folder / tower_digest(encoder)[:16]
        self.folder.mkdir(parents=True, exist_ok=True)

    def of_all(self, views: Mapping[str, Frames]) -> dict[str, FilmMaps]:
        """View -> the maps of its film."""
        return {name: self.of(frames) for name, frames in views.items()}

    def of(self, frames: Frames) -> FilmMaps:
        """The maps of a film uint8 [T, H, W, 3], from the disk if they are there. Raises `DataError` for a file that
        is not what was put away."""
        path = self.folder / f"{hashlib.sha256(np.ascontiguousarray(frames).data).hexdigest()}.safetensors"
        shape = (len(frames), *self._shape)
        if not path.exists():
            self._look(frames, path, shape)
        return FilmMaps(path, shape)

    @torch.no_grad()
    def _look(self, frames: Frames, path: Path, shape: tuple[int, ...]) -> None:
        """Look at a film block by block, and put away what is seen."""
        head = header(shape)
        with atomic_file(path) as partial, partial.open("wb") as stream:
            stream.write(head)
            for start in range(0, len(frames), BLOCK):
                pixels = torch.from_numpy(np.ascontiguousarray(frames[start : start + BLOCK]))
                maps = self._encoder.look(self._encoder.prepare(pixels)).contiguous().half().numpy()
                if not np.isfinite(maps).all():
                    raise DataError(f"{path.parent}: the tower's maps are too large for half precision")
                stream.write(maps.tobytes())


def tower_digest(encoder: Encoder) -> str:
    """SHA-256 of all that decides what the image tower sees."""
    digest = hashlib.sha256(json.dumps(asdict(encoder.config), sort_keys=True, default=str).encode())
    for name, tensor in sorted(encoder.clip.visual.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def header(shape: tuple[int, ...]) -> bytes:
    """The beginning of a safetensors file that holds one tensor of half precision, "maps"."""
    size = 2 * int(np.prod(shape))
    content = json.dumps({"maps": {"dtype": "F16", "shape": list(shape), "data_offsets": [0, size]}}).encode()
    content += b" " * (-len(content) % PREFIX)
    return len(content).to_bytes(PREFIX, "little") + content


class FilmMaps:
    """The maps in a file, [T, C, h, w]: mapped into memory while some of them are taken, and no longer, since a dataset
    has more films than a process may have open."""

    dtype = np.dtype(np.float16)

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        """Raises `DataError` when the file does not hold maps of that shape."""
        self.path, self.shape, self._head = path, shape, header(shape)
        with path.open("rb") as stream:
            begins = stream.read(len(self._head))
        if begins != self._head or path.stat().st_size != len(self._head) + 2 * int(np.prod(shape)):
            raise DataError(f"{path}: does not hold maps {list(shape)}; delete it, and they are made anew")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Maps:
        return np.array(np.memmap(self.path, np.float16, "r", len(self._head), self.shape)[rows])
