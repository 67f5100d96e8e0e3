"""`EmbeddingCache` encodes each text or image once, and holds a bounded number of embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.embedding_cache import EmbeddingCache
from embodied_rm.types import Frames


class Sums:
    """The sum of an image's pixels as its embedding; records what was encoded."""

    def __init__(self) -> None:
        self.encoded: list[int] = []

    def __call__(self, images: Sequence[Frames]) -> list[Tensor]:
        self.encoded += [int(image.sum()) for image in images]
        return [torch.tensor(int(image.sum())) for image in images]


def make_images(*values: int) -> list[Frames]:
    return [np.full((1, 1, 3), value, np.uint8) for value in values]


def test_equal_images_are_encoded_once_and_returned_in_order() -> None:
    encode = Sums()
    cache = EmbeddingCache(encode)
    assert [int(row) for row in cache.get(make_images(2, 1, 2))] == [6, 3, 6]
    assert [int(row) for row in cache.get(make_images(1, 3))] == [3, 9]
    assert encode.encoded == [6, 3, 9]
    assert cache.get([]) == []


def test_images_of_equal_bytes_and_other_sizes_differ() -> None:
    encode = Sums()
    cache = EmbeddingCache(encode)
    wide = np.arange(12, dtype=np.uint8).reshape(1, 4, 3)
    cache.get([wide, wide.reshape(4, 1, 3), wide[:, ::-1]])
    assert len(encode.encoded) == 3


def test_a_full_cache_keeps_the_latest_request() -> None:
    encode = Sums()
    cache = EmbeddingCache(encode, capacity=3)
    cache.get(make_images(1, 2, 3))
    cache.get(make_images(3, 4))
    assert encode.encoded == [3, 6, 9, 12]
    cache.get(make_images(3, 4))
    assert len(encode.encoded) == 4
    cache.get(make_images(1, 2))
    assert encode.encoded[4:] == [3, 6], "they were dropped"


def test_a_request_beyond_the_capacity_is_answered() -> None:
    cache = EmbeddingCache(Sums(), capacity=1)
    assert [int(row) for row in cache.get(make_images(1, 2, 3))] == [3, 6, 9]


def test_a_text_is_encoded_once() -> None:
    texts: list[str] = []

    def encode(new: Sequence[str]) -> list[Tensor]:
        texts.extend(new)
        return [torch.zeros(1) for _ in new]

    cache = EmbeddingCache(encode)
    cache.get(["lift", "push", "lift"])
    cache.get(["push"])
    assert texts == ["lift", "push"]
