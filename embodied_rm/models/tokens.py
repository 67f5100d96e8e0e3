"""Instructions to token ids: open_clip's byte-pair tokenizer, its 49,408 words hashed into as few as a model needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor

PAD = 0


@cache
def known_words() -> tuple[str, ...]:
    """Words of three letters or more that are one token each, of the 49,408 tokens."""
    whole = (token.removesuffix("</w>") for token in simple_tokenizer().encoder if token.endswith("</w>"))
    return tuple(sorted(word for word in whole if len(word) >= 3 and word.isascii() and word.isalpha()))


@cache
def simple_tokenizer() -> SimpleTokenizer:
    """open_clip's tokenizer, read from its package once."""
    return SimpleTokenizer()


def tokenize(instructions: Sequence[str], context: int, vocabulary: int) -> Tensor:
    """Token ids int64 [N, context], start and end included, longer instructions cut, 0 behind the end.

    With fewer than 49,408 words the ids are hashed (Knuth, TAOCP 3, 6.4), start and end keeping the two largest ids, by
    which a text tower finds the end. The same text gives the same ids in every process.
    """
    rows = [_row(text, context, vocabulary) for text in instructions]
    return torch.tensor(rows, dtype=torch.int64).view(len(rows), context)


@lru_cache(maxsize=2**15)
def _row(text: str, context: int, vocabulary: int) -> tuple[int, ...]:
    """One of them. Training reads the same sentences again and again."""
    words = [_hashed(word, vocabulary) for word in simple_tokenizer().encode(text)][: context - 2]
    told = (vocabulary - 2, *words, vocabulary - 1)
    return (*told, *(PAD,) * (context - len(told)))


def _hashed(word: int, vocabulary: int) -> int:
    if vocabulary >= simple_tokenizer().vocab_size:
        return word
    return 1 + ((word * 2654435761) % 2**32) * (vocabulary - 3) // 2**32
