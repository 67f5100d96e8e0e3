"""`SentenceEncoder`: sentences -> vectors of their tokens, by the pretrained sentence encoder; never trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from embodied_rm.models.load_pretrained import checkpoint_errors
from embodied_rm.models.pretrained_weights import MINILM, download_weights, find_weights, tensors_sha256
from embodied_rm.models.processor_limits import parse_tokenizer
from embodied_rm.models.tokens import MAX_TEXT_CHARS

MAX_TOKENS = 32  # tokens of a sentence; further ones are cut
MAX_CACHED_SENTENCES = 4096


class SentenceTokens(NamedTuple):
    """Tokens of S sentences."""

    vectors: Tensor  # float [S, L, D]
    mask: Tensor  # bool [S, L]; False: padding

    def mean(self) -> Tensor:
        """Sentence vectors [S, D]."""
        counts = self.mask.sum(dim=1, keepdim=True).clamp_min(1)
        return (self.vectors * self.mask[..., None]).sum(dim=1) / counts


class SentenceEncoder:
    """all-MiniLM-L6-v2, by its last hidden states."""

    def __init__(self, folder: Path | None = None) -> None:
        """
        Args:
            folder: Folder of the weights and the tokenizer; None: the installed one, else that of the hub.

        Raises:
            CheckpointError: When they are absent or damaged.
        """
        from embodied_rm.models.transformers_towers import load_text_encoder  # by transformers, which takes seconds

        if folder is None:
            path = find_weights(MINILM)
            folder = download_weights(MINILM) if path is None else path.parent
        loaded = load_text_encoder(folder)
        self.weights_sha256 = tensors_sha256(loaded.model.state_dict())
        self._model = loaded.model.eval()
        self.width = int(self._model.config.hidden_size)
        self._tokenizer = parse_tokenizer(loaded.tokenizer.decode(), folder)
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding(length=MAX_TOKENS, pad_id=int(self._model.config.pad_token_id))
        self._encode_one = lru_cache(MAX_CACHED_SENTENCES)(self._encode)

    def encode(self, sentences: Sequence[str]) -> SentenceTokens:
        """Encode sentences; each one once."""
        rows = [self._encode_one(sentence) for sentence in sentences]
        return SentenceTokens(torch.stack([row.vectors for row in rows]), torch.stack([row.mask for row in rows]))

    def _encode(self, sentence: str) -> SentenceTokens:
        with checkpoint_errors("the sentence encoder cannot encode an instruction"):
            encoding = self._tokenizer.encode(sentence[:MAX_TEXT_CHARS])
        ids, mask = torch.tensor([encoding.ids]), torch.tensor([encoding.attention_mask])
        with torch.inference_mode():
            vectors = self._model(input_ids=ids, attention_mask=mask).last_hidden_state[0]
        return SentenceTokens(vectors.clone(), mask[0].bool())


@cache
def open_sentence_encoder() -> SentenceEncoder:
    """Return the encoder, loaded once per process."""
    return SentenceEncoder()
