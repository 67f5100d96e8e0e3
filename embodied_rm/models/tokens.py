"""Token ids of instructions: open_clip's byte-pair tokenizer; its 49,408 ids can be hashed to fewer."""

import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PAD_ID = 0
MAX_TEXT_CHARS = 2000  # longer texts are cut before they are tokenized
MAX_WORD_BYTES = 64  # longer words are split: the tokenizer takes quadratic time
MAX_CACHED_WORDS = 1 << 14
MAX_CACHED_TEXTS = 1 << 13


@cache
def known_words() -> tuple[str, ...]:
    """Words of three letters or more that are one token of the tokenizer."""
    candidates = (token.removesuffix("</w>") for token in simple_tokenizer().encoder if token.endswith("</w>"))
    return tuple(sorted(word for word in candidates if len(word) >= 3 and word.isascii() and word.isalpha()))


@cache
def simple_tokenizer() -> Any:
    """Return open_clip's `SimpleTokenizer`, made once.

    Its file is run by itself: importing the package would import timm and torchvision too, which takes seconds.
    """
    package = importlib.util.find_spec("open_clip")
    assert package is not None and package.submodule_search_locations, "open_clip is installed"
    path = Path(package.submodule_search_locations[0]) / "tokenizer.py"
    spec = importlib.util.spec_from_file_location("open_clip_tokenizer", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SimpleTokenizer()


def tokenize(instructions: Sequence[str], context_length: int, vocab_size: int) -> Tensor:
    """Token ids int64 [N, context_length], with start and end, truncated or padded with 0.

    With a smaller vocabulary the ids are hashed (Knuth, TAOCP 3, 6.4). Start and end keep the two largest ids, since a
    text tower finds the end by its id. Hashing is deterministic across processes.
    """
    rows = [_token_row(text[:MAX_TEXT_CHARS], context_length, vocab_size) for text in instructions]
    return torch.tensor(rows, dtype=torch.int64).view(len(rows), context_length)


@lru_cache(MAX_CACHED_TEXTS)
def _token_row(text: str, context_length: int, vocab_size: int) -> tuple[int, ...]:
    """Token ids of one instruction; cached, since training repeats the same sentences."""
    tokens = [_hash_id(token, vocab_size) for token in islice(_iterate_tokens(text), context_length - 2)]
    ids = (vocab_size - 2, *tokens, vocab_size - 1)
    return (*ids, *(PAD_ID,) * (context_length - len(ids)))


def _iterate_tokens(text: str) -> Iterator[int]:
    """Yield the ids that `SimpleTokenizer.encode` returns, but split words of more than `MAX_WORD_BYTES`."""
    tokenizer = simple_tokenizer()
    if len(tokenizer.cache) > MAX_CACHED_WORDS:
        tokenizer.cache = {tokenizer.decoder[token]: tokenizer.decoder[token] for token in tokenizer.all_special_ids}
    for match in tokenizer.pat.finditer(tokenizer.clean_fn(text)):
        word = "".join(tokenizer.byte_encoder[byte] for byte in match[0].encode())
        for start in range(0, len(word), MAX_WORD_BYTES):
            yield from map(
                tokenizer.encoder.__getitem__, tokenizer.bpe(word[start : start + MAX_WORD_BYTES]).split(" ")
            )


def _hash_id(token_id: int, vocab_size: int) -> int:
    if vocab_size >= simple_tokenizer().vocab_size:
        return token_id
    return 1 + ((token_id * 2654435761) % 2**32) * (vocab_size - 3) // 2**32
