"""A bounded cache of embeddings: a frame of a video is in many queries, and is encoded once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor

from embodied_rm.types import Frames

MAX_CACHED_EMBEDDINGS = 4096

Item = TypeVar("Item", bound="str | Frames")


class EmbeddingCache(Generic[Item]):
    """Embeddings of texts or images by their content. When it is full, it keeps those of the latest request."""

    def __init__(self, encode: Callable[[Sequence[Item]], Iterable[Tensor]], capacity: int = MAX_CACHED_EMBEDDINGS):
        """
        Args:
            encode: Function that returns the embeddings of new items, in order.
            capacity: Number of embeddings that are kept; a larger request is kept as a whole.
        """
        self._encode, self._capacity = encode, capacity
        self._embeddings: dict[Hashable, Tensor] = {}

    def get(self, items: Sequence[Item]) -> list[Tensor]:
        """Return the embeddings of items, in order; those without one are encoded together."""
        keys = [content_key(item) for item in items]
        self._add(dict(zip(keys, items, strict=True)))
        return [self._embeddings[key] for key in keys]

    def _add(self, items: Mapping[Hashable, Item]) -> None:
        new_items = {key: item for key, item in items.items() if key not in self._embeddings}
        if len(self._embeddings) + len(new_items) > self._capacity:
            self._embeddings = {key: value for key, value in self._embeddings.items() if key in items}
        if new_items:
            self._embeddings.update(zip(new_items, self._encode(list(new_items.values())), strict=True))


def content_key(item: str | Frames) -> Hashable:
    """Return a key that two texts, or two images, share if they are equal."""
    if isinstance(item, str):
        return item
    return item.shape, hashlib.sha256(np.ascontiguousarray(item).data).digest()
