"""Token ids cost no more than the tokens that are used, whatever the text, and equal those of open_clip."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embodied_rm.models import tokens
from embodied_rm.models.tokens import MAX_WORD_BYTES, simple_tokenizer, tokenize

LETTERS = np.random.default_rng(0).choice(list("abcdefghijklmnopqrstuvwxyz"), 2_000_000)
VOCAB_SIZE = 49408


def test_long_words_and_texts_cost_no_more_than_their_first_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, lengths = simple_tokenizer(), list[int]()
    bpe = tokenizer.bpe

    def record(word: str) -> str:
        lengths.append(len(word))
        return bpe(word)

    monkeypatch.setattr(tokenizer, "bpe", record)
    ids = tokenize(["".join(LETTERS), " ".join(LETTERS), "☂" * 2_000_000], 77, VOCAB_SIZE)
    assert max(lengths) <= MAX_WORD_BYTES and sum(lengths) < 1000 and (ids > 0).all()
    first, second = tokenize(["".join(LETTERS[:200]), "".join(LETTERS[1:200])], 77, VOCAB_SIZE)
    assert not torch.equal(first, second)


def test_a_limited_number_of_words_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_CACHED_WORDS", 50)
    for start in range(0, 6000, 120):
        tokenize([" ".join("".join(LETTERS[start + n :][:6]) for n in range(20))], 77, VOCAB_SIZE)
    assert len(simple_tokenizer().cache) < 100
    text = "<start_of_text> Lift the naïve cube, that's it ☂ <end_of_text>"
    assert tokenize([text], 77, VOCAB_SIZE)[0, 1:].tolist()[: len(ids := simple_tokenizer().encode(text))] == ids
